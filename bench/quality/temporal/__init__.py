"""The judge `temporal` of `graphmem eval`; see `bench/quality/README.md`."""
