"""Environments whose observations are pictures: Atari games, and the five of MinAtar in the compiled core."""
