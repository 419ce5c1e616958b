"""The judge `longdoc` of `graphmem eval`; see `bench/quality/README.md`."""
