"""The judge `context` of `graphmem eval`; see `bench/quality/README.md`."""
