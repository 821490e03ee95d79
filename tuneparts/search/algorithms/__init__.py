"""Search algorithms: which trials a replicate runs. `base` says what an algorithm is."""
