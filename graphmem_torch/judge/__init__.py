"""Rules of English: what a text states, and whether two statements can both be true.

May import `oracle` (for verdicts), `text` and what lies below them. Needs no model; an oracle of
the caller replaces the rules. Import names from their modules.
"""
