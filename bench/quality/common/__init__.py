"""Parts shared by several judges: conversations, systems under comparison, tallies, tables."""
