"""Searches: what they are, what they plan, and how Ray runs them.

Only `trainable`, `searcher`, `halt`, `tasks`, `cluster` and `runner` import Ray.
"""
