"""Text in, numbers out: tokens, terms, sentences, concepts, questions, times, encoders.

May import `linalg`, `oracle` (for verdicts) and what lies below them. Names are imported from their
modules: reading a time needs none of what the encoders need.
"""
