"""Claims about MinAtar."""
