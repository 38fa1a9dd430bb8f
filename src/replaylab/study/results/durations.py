"""Spans of time, for people."""


def duration(seconds: float) -> str:
    """Return a span of time for people: ``8 s``, ``2 min 05 s``, ``1 h 04 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
