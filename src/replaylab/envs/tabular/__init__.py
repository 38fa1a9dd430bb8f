"""Environments defined by a transition table."""
