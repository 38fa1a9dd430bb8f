"""Files that are complete or absent, even if the process is killed, and that are checked when they are read."""
