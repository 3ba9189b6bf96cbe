"""Inspect models, run the theory, reproduce the tables."""
