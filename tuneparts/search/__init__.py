"""Searches: what they are, which trials they plan, and where checkpoints and runs lie. No Ray."""
