"""The judge `growth` of `graphmem eval`; see `bench/quality/README.md`."""
