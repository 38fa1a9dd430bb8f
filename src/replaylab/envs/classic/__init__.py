"""Classic control, stepped by NumPy."""
