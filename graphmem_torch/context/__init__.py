"""Context compiler: chooses memories within a token budget and formats them."""
