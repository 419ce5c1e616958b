"""The judge `refinement` of `graphmem eval`; see `bench/quality/README.md`."""
