"""Spans of time, for people."""


def duration(seconds: float) -> str:
    """Return a span of time for people: ``8 s``, ``2 min 05 s``, ``1 h 04 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
