"""The one training loop and what every method shares around it."""
