"""What a run measures: the registry of its metrics, and the table of their values."""
