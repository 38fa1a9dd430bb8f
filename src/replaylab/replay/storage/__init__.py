"""Where the rows lie, and which of them are kept."""
