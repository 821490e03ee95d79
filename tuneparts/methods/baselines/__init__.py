"""What partitioned networks are compared with."""
