"""Ensembles that SuperWeight networks are compared with, one file per method."""
