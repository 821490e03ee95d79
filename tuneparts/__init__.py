"""Ray Tune search and benchmarking of methods that learn hyperparameters in one run."""

__version__ = "0.1.0"
