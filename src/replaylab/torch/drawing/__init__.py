"""Draws of steps: random numbers, integer priorities and their tree."""
