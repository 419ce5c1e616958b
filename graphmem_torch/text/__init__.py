"""Text in, numbers out: tokens, terms, sentences, concepts, questions, times, encoders.

May import `linalg` and what lies below it. Names are imported from their
modules: reading a time needs none of what the encoders need.
"""
