"""The Ray executor: a plan on a Ray cluster. Only this folder needs Ray."""
