"""Environments around environments: noise, bins, visit counts."""
