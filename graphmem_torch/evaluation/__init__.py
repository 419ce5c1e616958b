"""Evaluation: ranking measures, bootstrap intervals, and `evaluate` for a user's own questions.

Imports only from `errors` and `results`; the judges of `graphmem eval` are in `bench/quality`.
"""
