"""Which steps are drawn: random numbers, integer priorities and their tree."""
