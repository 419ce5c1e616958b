"""The context compiler: what fits a token budget, and how it is written."""
