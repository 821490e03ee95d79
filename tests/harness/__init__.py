"""Faults struck at a real search: nodes, drivers, servers and disks that break while it runs."""
