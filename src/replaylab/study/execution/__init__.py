"""Running chunks."""
