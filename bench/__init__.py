"""Benchmarks: `bench.perf` (speed against peers), `bench.scale` and `bench.crash_test`."""
