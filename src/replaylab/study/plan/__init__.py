"""From a study file to the populations it needs."""
