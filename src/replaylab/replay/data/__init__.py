"""Contents of steps and batches: fields, arrays and their rules, schedules, seeds."""
