"""Evaluation: ranking measures, bootstrap intervals, `evaluate` on a user's own questions.

Imports from `errors` and `results` only; the judges of `graphmem eval` are in `bench/quality`.
"""
