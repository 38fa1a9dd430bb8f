"""What a worker does with a task: train a chunk, check it, time it."""
