"""Evaluation of policies: returns, values, and errors of values."""
