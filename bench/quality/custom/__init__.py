"""The judge `custom` of `graphmem eval`; see `bench/quality/README.md`."""
