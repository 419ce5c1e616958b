"""What several judges share: conversations, systems under comparison, tallies, tables."""
