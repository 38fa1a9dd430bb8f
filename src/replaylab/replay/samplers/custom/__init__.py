"""Samplers written in Python: their base classes, and what a buffer keeps for them."""
