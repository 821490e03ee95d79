"""Partitioned networks: hyperparameters learnt in one run (Mlodozeniec et al. 2023)."""
