"""A user's own data in the form of BEIR: a corpus, queries and graded judgements."""
