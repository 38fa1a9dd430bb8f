"""Nested columns, compared bit for bit."""


def same(value, other):
    """Return whether two trees of arrays have the same form, dtypes and bytes."""
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return value.dtype == other.dtype and value.shape == other.shape and value.tobytes() == other.tobytes()
