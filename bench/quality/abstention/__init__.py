"""The judge `abstention` of `graphmem eval`; see `bench/quality/README.md`."""
