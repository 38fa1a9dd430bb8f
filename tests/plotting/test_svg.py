"""SVG of few bytes that looks as matplotlib drew it, to a tenth of a pixel."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from replaylab.plotting import svg

SIDE = 100


def drawn(draw):
    """Return the inside of the SVG of a figure of 100 by 100 pixels, by what draws on its axes, which fill it."""
    with svg.style():
        figure = Figure(figsize=(SIDE / 72, SIDE / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, SIDE), ylim=(0, SIDE))
        axes.set_axis_off()
        draw(axes)
        return ElementTree.fromstring(f"<svg>{svg.body(figure).replace('xlink:', '')}</svg>")


def points(data):
    """Return the corners of path data in pixels from the upper left, shape (points, 2)."""
    axes, at = [], np.zeros(2)
    for letter, numbers in re.findall(r"([Mmlhvz])([^Mmlhvz]*)", data):
        values = [int(v) / 10 for v in re.findall(r"-?\d+", numbers)]
        step = np.array({"h": [*values, 0], "v": [0, *values], "z": [0, 0]}.get(letter, values))
        at = step if letter == "M" else at + step
        axes.append(at)
    return np.array(axes)


def distance(point, line):
    """Return how far a point is from a line of straight pieces."""
    a, b = line[:-1], line[1:]
    length = np.maximum(((b - a) ** 2).sum(axis=1), 1e-12)
    share = np.clip(((point - a) * (b - a)).sum(axis=1) / length, 0, 1)
    return np.linalg.norm(point - a - share[:, None] * (b - a), axis=1).min()


@pytest.mark.parametrize("seed", range(10))
def test_every_point_stays_where_it_was(seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(1, 99, 200)
    y = 50 + np.cumsum(rng.choice([-0.5, 0.0, 0.5], 200))
    (path,) = drawn(lambda axes: axes.plot(x, y)).iter("path")
    line = points(path.get("d"))
    assert max(distance(point, line) for point in np.stack([x, SIDE - y], axis=1)) < 0.2
    assert len(line) < 200


def test_a_flat_line_is_its_two_ends_and_nan_a_gap():
    line = [5.0, 5.0, 5.0, 5.0, np.nan, 7.0, 7.0]
    (path,) = drawn(lambda axes: axes.plot(range(10, 17), line)).iter("path")
    assert path.get("d") == "M100 950h30m20-20h10"


def test_neighbors_of_one_style_share_a_group_unless_transparent():
    def draw(axes):
        for level in (10, 20):
            axes.fill([10, 90, 90], [level, level, level + 5], color="#123456", alpha=0.5)

    shapes = drawn(draw)[0]
    (group,) = shapes
    assert len(group) == 2
    assert (group.get("fill"), group.get("fill-opacity")) == ("#123456", "0.5")


@pytest.mark.parametrize("filled", [False, True])
def test_nothing_is_drawn_outside_the_axes(filled):
    def draw(axes):
        (axes.fill if filled else axes.plot)([-50, 50, 150], [50, 120, 50], color="#123456")

    (path,) = drawn(draw).iter("path")
    corners = points(path.get("d"))
    assert -1 <= corners.min() < corners.max() <= SIDE + 1


def test_dots_are_round_ends_of_lines_without_length():
    (group,) = drawn(lambda axes: axes.plot([10, np.nan, 30], [90, 50, 70], "o", ms=4, color="#123456"))[0]
    assert group[0].get("d") == "M100 100h0m200 200h0"
    assert (group.get("stroke"), group.get("stroke-width"), group.get("stroke-linecap")) == ("#123456", "40", "round")


def test_a_series_is_a_class_and_text_is_text():
    def draw(axes):
        svg.mark(axes.plot([0, 1], [0, 1])[0], "s3")
        axes.text(50, 50, 'a < "b" & $é$', ha="center")

    root = drawn(draw)
    assert root[0][0].get("class") == "s3"
    (text,) = root.iter("text")
    assert (text.text, text.get("x")) == ('a < "b" & $é$', "50")
    assert root[1].get("text-anchor") == "middle"


def test_images_keep_their_pixels_and_their_place():
    frame = np.zeros((4, 8), np.uint8)
    root = drawn(lambda axes: axes.imshow(frame, extent=(20, 60, 70, 90), aspect="auto", interpolation="none"))
    (image,) = root.iter("image")
    assert image.get("href").startswith("data:image/png;base64,")


def test_colors_of_the_palette_become_variables():
    page = svg.on_page('<g fill="#1b1f24"><text>#1b1f24</text></g>', (10, 10), 'a "name"')
    assert '<g fill="var(--ink)"><text>#1b1f24</text></g>' in page
    assert 'aria-label="a &quot;name&quot;"' in page
