"""Reports: pages, tables, figures and sentences."""
