"""Samplers: the choice of the stored steps for a batch, with their exact probabilities."""
