"""Collecting steps from environments and data pipelines."""
