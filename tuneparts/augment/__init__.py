"""Augmentation, dropout, masks and temperature: what acts on a prediction besides the net."""
