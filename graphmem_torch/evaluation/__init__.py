"""Evaluation: ranking measures and bootstrap intervals; the judges are in `bench/quality`.

Imports from `errors` only.
"""
