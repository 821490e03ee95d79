"""Figures: functions from run data to a drawing; `gallery` names those for searches."""
