"""Files that are whole or not there, whatever kills the process, and that are checked when they are read."""
