"""Workloads measured, not asserted. `make bench` prints one JSON line per workload."""
