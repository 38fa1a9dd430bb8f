"""What a run measures, by name."""
