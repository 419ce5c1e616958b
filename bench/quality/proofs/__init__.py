"""The judge `proofs` of `graphmem eval`; see `bench/quality/README.md`."""
