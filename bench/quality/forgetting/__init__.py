"""The judge `forgetting` of `graphmem eval`; see `bench/quality/README.md`."""
