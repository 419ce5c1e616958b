"""The command line; nothing is imported from here."""
