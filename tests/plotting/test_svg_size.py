"""Lighter SVG: fewer bytes, and the same picture to a tenth of a pixel."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from replaylab.plotting.svg_size import lighter, shorter_path


def absolute(d):
    """Return the points of each line of relative or absolute path data, shape (points, 2) each."""
    lines, at, start = [], np.zeros(2), np.zeros(2)
    for letter, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        values = np.array([float(v) for v in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", numbers)])
        if letter in "zZ":
            at = start
            continue
        flat = {"h": (1, 0), "v": (0, 1)}.get(letter)
        steps = np.outer(values, flat) if flat else values.reshape(-1, 2)
        for step in steps:
            at = step if letter.isupper() else at + step
            if letter in "mM":
                lines.append([])
                start = at
            lines[-1].append(at)
    return [np.array(line) for line in lines]


def distance(point, line):
    """Return how far a point is from a line of straight pieces."""
    found = [np.linalg.norm(point - line[0])]
    for a, b in pairwise(line):
        length = ((b - a) ** 2).sum()
        share = np.clip((point - a) @ (b - a) / length, 0, 1) if length else 0.0
        found.append(np.linalg.norm(point - a - share * (b - a)))
    return min(found)


@pytest.mark.parametrize("seed", range(20))
def test_every_point_stays_where_it_was(seed):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rng.integers(1, 4)):
        points = np.cumsum(rng.choice([0.0, 0.04, 1.0, 9.0], (rng.integers(2, 150), 2)) * rng.choice([-1, 1]), axis=0)
        if rng.random() < 0.5:
            points[:, 1] = points[0, 1]  # flat, as most curves are for a while
        lines.append(points + rng.uniform(0, 200, 2))
    d = " ".join("M " + " L ".join(f"{x:.6f} {y:.6f}" for x, y in line) for line in lines)
    short = absolute(shorter_path(d))
    assert len(short) == len(lines)
    assert len(shorter_path(d)) < 0.5 * len(d)
    for line, drawn in zip(lines, short, strict=True):
        assert max(distance(point, drawn) for point in line) < 0.2
        assert max(distance(point, line) for point in drawn) < 0.1


def test_a_flat_line_is_its_two_ends():
    assert shorter_path("M 0 5 " + " ".join(f"L {x} 5" for x in range(1, 50))) == "M0 5h49"


def test_a_way_back_is_kept():
    assert absolute(shorter_path("M 0 0 L 10 0 L 4 0"))[0][:, 0].max() == 10


def test_closed_lines_begin_again_where_they_began():
    lines = absolute(shorter_path("M 1 1 L 5 1 L 5 4 z M 20 20 L 30 31"))
    np.testing.assert_allclose(lines[1], [[20, 20], [30, 31]])


def test_curves_are_only_rounded():
    assert shorter_path("M 1.04 2 C 3.14 4 5.55 6 7 8") == "M1 2C3.1 4 5.5 6 7 8"


def properties(inside):
    """Return what is drawn: each leaf with its text, its data, its clip and the style that it has or inherits."""

    def walk(node, style, clips):
        own = dict(one.split(":") for one in node.get("style", "").replace(" ", "").split(";") if one)
        style = {k: v for k, v in style.items() if k != "opacity"} | own
        clips = clips + ([node.get("clip-path")] if node.get("clip-path") else [])
        if node.tag in ("path", "text"):
            yield node.tag, node.text, node.get("d"), node.get("x"), tuple(clips), tuple(sorted(style.items()))
        for child in node:
            yield from walk(child, style, clips)

    return list(walk(ElementTree.fromstring(f"<svg>{inside}</svg>"), {}, []))


FIGURE = (
    '<g><path d="M1 1h3" style="fill: none; stroke: #123456" clip-path="url(#a)"/></g>'
    '<g><g><path d="M2 1h3" style="fill: none; stroke: #123456" clip-path="url(#a)"/></g></g>'
    '<path d="M3 1h3" style="fill: none; stroke: #999999" clip-path="url(#a)"/>'
    '<path d="M4 1h3v1z" style="fill: #999999; opacity: 0.2" clip-path="url(#a)"/>'
    '<path d="M5 1h3v1z" style="fill: #999999; opacity: 0.2" clip-path="url(#a)"/>'
    '<g><text x="1" style="font-size: 11px; fill: #111111">a &lt; b /&gt;</text></g>'
    '<g><text x="2" style="font-size: 11px; fill: #111111">"q" &amp; é</text></g>'
    '<defs><clipPath id="a"><rect x="0" y="0" width="9" height="9"/></clipPath></defs>'
)


def test_what_is_drawn_stays_the_same_in_fewer_bytes():
    light = lighter(FIGURE)
    assert properties(light) == properties(FIGURE)
    assert len(light) < 0.75 * len(FIGURE)
    assert light.count("opacity") == 2, "what is see-through twice stays two"
    assert '<clipPath id="a">' in light


def test_references_keep_their_name_space():
    assert 'xlink:href="#m"' in lighter('<g><use xlink:href="#m" x="1" style="fill: #111111"/></g>')
