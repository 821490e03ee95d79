"""Figures: one file each, functions from evidence to a drawing; `gallery` names them."""
