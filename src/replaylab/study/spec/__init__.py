"""Study files: tables, rules and error messages."""
