"""Heat maps: what is written into a cell can be read, and the scale says what the colours are."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure

from replaylab.plotting import heat_map, palette


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(color, other):
    bright, dark = sorted((luminance(color), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [heat_map.SEQUENTIAL, heat_map.DIVERGING])
def test_every_number_stands_out_from_its_cell(colours):
    norm = Normalize(0, 1)
    for value in np.linspace(0, 1, 101):
        assert contrast(heat_map.ink_on(value, norm, colours), colours(value)) > 4.0, value


@pytest.mark.parametrize("colours", [heat_map.SEQUENTIAL, heat_map.DIVERGING])
def test_no_colour_of_a_cell_changes_with_the_page(colours):
    from matplotlib.colors import to_hex

    variables = {light for light, _ in palette.variables().values()}
    assert not variables & {to_hex(colours(i)) for i in range(colours.N)}
    assert not variables & {heat_map.DARK_INK, heat_map.LIGHT_INK}


def test_cells_without_colour_have_the_ink_of_the_page():
    assert heat_map.ink_on(np.nan, Normalize(0, 1), heat_map.SEQUENTIAL) == palette.INK
    assert heat_map.ink_on(0.0, LogNorm(1, 10), heat_map.SEQUENTIAL) == palette.INK


def test_numbers_stand_in_their_cells():
    axes = Figure().subplots()
    values = np.array([[1.0, np.nan, 0.0], [4.0, 0.0, 6.0]])
    heat_map.write_numbers(axes, values, Normalize(0, 6), heat_map.SEQUENTIAL, skipped={4})
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0.5, 0.52): "1",
        (2.5, 0.52): "0",
        (0.5, 1.52): "4",
        (2.5, 1.52): "6",
    }


def test_frames_are_inside_their_cells():
    axes = Figure().subplots()
    heat_map.frame_cells(axes, np.array([1, 5]), np.zeros((2, 3)), Normalize(-1, 1), heat_map.DIVERGING)
    assert [(int(p.get_y()), int(p.get_x())) for p in axes.patches] == [(0, 1), (1, 2)]


def test_a_scale_has_its_numbers_where_the_map_has_their_colours():
    axes = Figure().subplots()
    heat_map.scale_below(axes, LogNorm(1, 100), heat_map.SEQUENTIAL, (1.0, 10.0, 100.0), str)
    assert [(text.get_position()[0], text.get_text()) for text in axes.texts] == [
        (0.0, "1.0"),
        (pytest.approx(0.5), "10.0"),
        (1.0, "100.0"),
    ]
