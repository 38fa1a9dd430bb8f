"""Storage of steps, and the assembly of batches from drawn steps."""
