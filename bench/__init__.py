"""Workloads measured, not asserted. `make bench` prints one JSON line per workload; see `docs/reference/benchmarks.md`."""
