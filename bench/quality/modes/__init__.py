"""The judge `modes` of `graphmem eval`; see `bench/quality/README.md`."""
