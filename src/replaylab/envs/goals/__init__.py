"""Environments with goals, for hindsight."""
