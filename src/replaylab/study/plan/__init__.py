"""The chunks of runs that a study trains."""
