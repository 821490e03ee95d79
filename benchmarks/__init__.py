"""What the platform and its methods cost beside the stock way of doing the same."""
