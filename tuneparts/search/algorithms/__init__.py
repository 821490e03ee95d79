"""Search algorithms: which trials an arm runs under a seed. `base` says what an algorithm is."""
