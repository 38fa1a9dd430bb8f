"""Nested columns, compared bit for bit."""


def same(one, other):
    """Return whether two trees of arrays have the same form, dtypes and bytes."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
