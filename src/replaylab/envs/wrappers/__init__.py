"""Wrappers of environments: noise, bins, visit counts."""
