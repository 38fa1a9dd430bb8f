"""Which stored steps a batch is made of, with what exact probability."""
