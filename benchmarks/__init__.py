"""Benchmarks: this library beside its peers and beside the machine's limit. See README.md."""
