"""What a worker does with a task: train a population, check it, time it."""
