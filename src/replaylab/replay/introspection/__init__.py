"""Looking into a buffer: what it holds, by id and by slot, in figures and on a page."""
