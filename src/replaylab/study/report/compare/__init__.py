"""Comparison of the results of two studies."""
