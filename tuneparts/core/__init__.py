"""What every room stands on: configs, registries, metrics, random streams, files, errors."""
