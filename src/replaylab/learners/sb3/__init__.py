"""Stable-Baselines3's algorithms as learners: their own `learn`, with a replay of the laboratory."""
