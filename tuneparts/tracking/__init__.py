"""MLflow: what a search reports is mirrored to a store and read back as frames."""
