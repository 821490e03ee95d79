"""Federated partitioned training (Mlodozeniec et al. 2023, appendix J), and federated averaging."""
