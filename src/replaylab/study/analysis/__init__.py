"""Analysis of results: curves, levels, differences, contrasts, visits."""
