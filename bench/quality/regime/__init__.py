"""The judge `regime` of `graphmem eval`; see `bench/quality/README.md`."""
