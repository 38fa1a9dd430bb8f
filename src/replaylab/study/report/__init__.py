"""From numbers to a page."""
