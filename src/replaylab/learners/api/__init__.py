"""Interfaces between learners and the training loop."""
