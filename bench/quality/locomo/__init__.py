"""The judge `locomo` of `graphmem eval`; see `bench/quality/README.md`."""
