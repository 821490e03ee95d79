"""SuperWeight networks: several nets from one parameter budget (Teterwak et al. 2024)."""
