"""Weights as Gaussians, fixed by rounds on powers of two (Subia-Waud & Dasmahapatra 2023)."""
