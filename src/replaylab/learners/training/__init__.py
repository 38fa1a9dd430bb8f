"""The training loop, and what moves while it runs."""
