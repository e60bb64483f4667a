"""Workloads measured, not asserted: `make bench`. `docs/reference/benchmarks.md` says what and how."""
