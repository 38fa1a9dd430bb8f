"""The same picture in fewer bytes: what matplotlib writes of an SVG, without what nobody sees.

Coordinates are rounded to tenths of a pixel and written as steps from the point before; points of a line that lie on
the way between their neighbours are left out; neighbours that look the same share one group, which has their style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from xml.etree import ElementTree

Point = tuple[int, int]
"""In tenths of a pixel."""

_FAR = 1.0
"""Tenths of a pixel that a left-out point may be away from the line that is drawn in its stead."""

_AT_ONCE = 60
"""Points that one line may stand for, so that long curves take no long time."""

_STEPS = re.compile(r"([MLz])([^MLz]*)")
_STRAIGHT = re.compile(r"[MLz\d\s.eE+-]*")
_LEAVES = ("path", "text", "use")
_DEFAULTS = {"stroke-dashoffset": "0", "text-anchor": "start"}
_NOT_INHERITED = "opacity"
_XLINK = ("xlink:href", "xlink-href")
"""As it stands, and as a parser without namespaces takes it."""


def lighter(inside: str) -> str:
    """Return the inside of an SVG element that looks the same and takes fewer bytes.

    Args:
        inside: well-formed XML, its style in `style` attributes.
    """
    root = ElementTree.fromstring(f"<svg>{inside.replace(*_XLINK)}</svg>")
    for one in root.iter():
        if "d" in one.attrib:
            one.set("d", shorter_path(one.attrib["d"]))
        if "style" in one.attrib:
            one.set("style", _as_style({k: v for k, v in _properties(one).items() if _DEFAULTS.get(k) != v}))
    _unwrap(root)
    for parent in list(root.iter()):
        _share_styles(parent)
        _share_clips(parent)
    text = ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
    return text[len("<svg>") : -len("</svg>")].replace(" />", "/>").replace(_XLINK[1], _XLINK[0]) if len(root) else ""


def shorter_path(d: str) -> str:
    """Return path data of straight lines in relative steps; other data are only rounded.

    Example:
        >>> shorter_path("M 10.04 20 L 12.5 20 L 15.0 20 L 15 25.31 z M 3 3 L 3 3")
        'M10 20h5v5.3zm-7-17h0'
    """
    if not _STRAIGHT.fullmatch(d):
        return re.sub(r"\s*([A-Za-z])\s*", r"\1", re.sub(r"-?\d+\.\d+", rounded, d)).strip()
    parts: list[str] = []
    at: Point = (0, 0)
    for points, closed in _lines(d):
        first = points[0]
        parts.append(f"{'m' if parts else 'M'}{_pair(first[0] - at[0], first[1] - at[1])}")
        letter, at = "", first
        for point in _visible(points)[1:]:
            step = (point[0] - at[0], point[1] - at[1])
            kind = "h" if step[1] == 0 else "v" if step[0] == 0 else "l"
            numbers = _pair(*step) if kind == "l" else _tenths(step[0] or step[1])
            gap = "" if kind != letter or numbers.startswith("-") else " "
            parts.append(f"{kind if kind != letter else ''}{gap}{numbers}")
            letter, at = kind, point
        if closed:
            parts.append("z")
            at = first
    return "".join(parts)


def _lines(d: str) -> Iterator[tuple[list[Point], bool]]:
    """Yield the points of each line, and whether it is closed."""
    points: list[Point] = []
    for letter, numbers in _STEPS.findall(d):
        if letter == "z":
            yield points, True
            points = []
            continue
        values = [round(10 * float(v)) for v in numbers.split()]
        if letter == "M" and points:
            yield points, False
            points = []
        points += zip(values[::2], values[1::2], strict=True)
    if points:
        yield points, False


def _visible(points: list[Point]) -> list[Point]:
    """Return the points without those on the way from one kept point to the next."""
    if len(points) < 3:
        return points
    kept, start = [points[0]], 0
    for end in range(2, len(points)):
        if end - start > _AT_ONCE or not all(_between(points[start], p, points[end]) for p in points[start + 1 : end]):
            start = end - 1
            kept.append(points[start])
    return [*kept, points[-1]]


def _between(a: Point, p: Point, b: Point) -> bool:
    """Return whether p is on the way from a to b."""
    x, y, dx, dy = p[0] - a[0], p[1] - a[1], b[0] - a[0], b[1] - a[1]
    along, length = x * dx + y * dy, dx * dx + dy * dy
    return 0 <= along <= length and (x * dy - y * dx) ** 2 <= _FAR**2 * length


def _pair(x: int, y: int) -> str:
    second = _tenths(y)
    return f"{_tenths(x)}{'' if second.startswith('-') else ' '}{second}"


def _tenths(value: int) -> str:
    whole, rest = divmod(abs(value), 10)
    return f"{'-' if value < 0 else ''}{whole or ''}{f'.{rest}' if rest else '' if whole else '0'}"


def rounded(found: re.Match[str]) -> str:
    """Return a number with one decimal at most."""
    return f"{float(found[0]):.1f}".removesuffix(".0")


def _unwrap(parent: ElementTree.Element) -> None:
    """Put the children of groups that say nothing into their parents."""
    children: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        children += list(child) if child.tag == "g" and not child.attrib else [child]
    parent[:] = children


def _share_styles(parent: ElementTree.Element) -> None:
    """Group neighbours of one style; opacity is of each by itself, so those that have it stay alone."""
    children: list[ElementTree.Element] = []
    for child in parent:
        own: dict[str, str] = {key: child.attrib[key] for key in ("style", "clip-path") if key in child.attrib}
        if child.tag not in _LEAVES or "style" not in own or _NOT_INHERITED in _properties(child):
            children.append(child)
            continue
        if not children or children[-1].tag != "g" or children[-1].attrib != own:
            children.append(ElementTree.Element("g", own))
        for key in own:
            del child.attrib[key]
        children[-1].append(child)
    parent[:] = [_without_group(child) for child in children]


def _share_clips(parent: ElementTree.Element) -> None:
    """Group neighbours that are clipped alike, and let the group have what all their styles have in common."""
    children: list[ElementTree.Element] = []
    for clip, neighbours in groupby(parent, lambda child: child.attrib.get("clip-path")):
        found = list(neighbours)
        if clip is None or len(found) < 2:
            children += found
            continue
        group = ElementTree.Element("g", {"clip-path": clip})
        styles = [_properties(child) for child in found]
        common = {k: v for k, v in styles[0].items() if k != _NOT_INHERITED and all(s.get(k) == v for s in styles)}
        if common:
            group.set("style", _as_style(common))
        for child, style in zip(found, styles, strict=True):
            del child.attrib["clip-path"]
            own = {k: v for k, v in style.items() if k not in common}
            child.attrib.pop("style", None)
            if own:
                child.set("style", _as_style(own))
            group.append(child)
        children.append(group)
    parent[:] = children


def _properties(element: ElementTree.Element) -> dict[str, str]:
    pairs = (one.partition(":") for one in element.attrib.get("style", "").split(";") if one.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _as_style(properties: dict[str, str]) -> str:
    return ";".join(f"{name}:{value}" for name, value in properties.items())


def _without_group(group: ElementTree.Element) -> ElementTree.Element:
    """Return a group's only child with the group's style, or the group."""
    if group.tag != "g" or len(group) != 1 or "style" not in group.attrib:
        return group
    group[0].attrib.update(group.attrib)
    return group[0]
