"""Executors on this machine: worker processes, or the calling process itself."""
