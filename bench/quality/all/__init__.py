"""The judge `all` of `graphmem eval`; see `bench/quality/README.md`."""
