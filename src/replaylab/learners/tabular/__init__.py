"""Tabular learners, and exact values to compare them with."""
