"""Stable-Baselines3's algorithms as learners: their own `learn` runs, on a replay that the laboratory chooses."""
