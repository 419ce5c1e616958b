"""The judge `multihop` of `graphmem eval`; see `bench/quality/README.md`."""
