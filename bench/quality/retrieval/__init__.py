"""The judge `retrieval` of `graphmem eval`; see `bench/quality/README.md`."""
