"""Figures: one file each, functions from run_data to a drawing; `gallery` names them."""
