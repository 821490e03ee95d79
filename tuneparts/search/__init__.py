"""Searches: what they are, what they plan, and how Ray runs them.

Only `trainable` and `runner` import Ray.
"""
