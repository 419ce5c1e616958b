"""Text in, numbers out: tokens, terms, sentences, concepts, questions, times, encoders.

May import `linalg` and what lies below it. Import names from their modules: reading a time needs
none of the dependencies of the encoders.
"""
