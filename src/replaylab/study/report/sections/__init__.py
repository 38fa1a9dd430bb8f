"""The sections of a report: each a function of the page and the comparison results, in its own file."""
