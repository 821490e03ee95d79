"""Frames in, tables and figures out: what a search found, with its uncertainty."""
