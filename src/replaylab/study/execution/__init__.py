"""Running populations."""
