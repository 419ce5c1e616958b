"""Integrations: a memory as other packages want it. Each imports its package where it is used.

May import everything but the judges and the command line; nothing else imports from here.
"""
