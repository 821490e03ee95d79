"""Packed trials: several trials of one arm and seed trained as the lanes of one model."""
