"""Broken input for every reader."""
