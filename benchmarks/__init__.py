"""What the platform and its methods cost compared with the stock way of doing the same."""
