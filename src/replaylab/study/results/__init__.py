"""A study's folder: rows, records, provenance."""
