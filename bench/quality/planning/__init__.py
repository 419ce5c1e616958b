"""The judge `planning` of `graphmem eval`; see `bench/quality/README.md`."""
