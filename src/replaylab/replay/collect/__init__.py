"""How steps come in: from environments and from data pipelines."""
