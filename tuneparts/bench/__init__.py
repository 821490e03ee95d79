"""Benches: the cost of the platform and its methods beside the stock way of doing the same."""
