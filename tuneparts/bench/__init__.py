"""What the platform itself costs, always beside the stock way of doing the same."""
