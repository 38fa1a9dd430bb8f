"""The work of a worker: training, checking and timing a chunk."""
