"""The judge `longmemeval` of `graphmem eval`; see `bench/quality/README.md`."""
