"""Mutated files for the two readers of the library: of snapshots, and of files of rows (`make fuzz`)."""
