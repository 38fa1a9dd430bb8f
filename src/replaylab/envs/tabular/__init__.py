"""Environments that are a transition table."""
