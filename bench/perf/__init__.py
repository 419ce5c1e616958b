"""Speed of the operations beside the best peers; see `README.md`."""
