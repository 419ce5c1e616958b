"""Integrations: adapters of a memory to other packages, which are imported on use.

May import everything but the judges and the command line; nothing else imports from here.
"""
