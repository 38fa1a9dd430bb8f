"""From a study file to the chunks it needs."""
