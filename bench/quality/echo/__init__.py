"""The judge `echo` of `graphmem eval`; see `bench/quality/README.md`."""
