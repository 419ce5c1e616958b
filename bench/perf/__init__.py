"""Speed of the operations compared with the best peers; see `README.md`."""
