"""Results on disk: rows, records, provenance."""
