"""Rules of English: what a text states, and whether two statements can both be true.

May import `oracle` (for verdicts), `text` and what lies below them. Without a model; an oracle that
the caller gives decides instead. Names are imported from their modules.
"""
