"""Retrieval quality: how the shipped weights were fitted; see `README.md` for the judge."""
