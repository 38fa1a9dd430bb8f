"""What a step and a batch hold: fields, arrays and their rules, schedules, seeds."""
