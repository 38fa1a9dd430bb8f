"""Metrics of a run: their registry, and the table of their values."""
