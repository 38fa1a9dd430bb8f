"""Maps of grid worlds: the right number and arrow in the right cell."""

import io

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.text import Annotation
from PIL import Image

from replaylab.errors import ConfigError, ShapeError
from replaylab.watch import Grid, save, value_map, visit_map
from replaylab.watch.grid import DOWN, LEFT, RIGHT, UP, state_cells
from replaylab.watch.grid_maps import greedy_shares

CLIFF = Grid.of("CliffWalking-v1")


def texts(axes):
    """Text of the cells, by (row, column)."""
    by_cell = {}
    for text in axes.texts:
        if not isinstance(text, Annotation):
            column, row = text.get_position()
            by_cell.setdefault((int(row), int(column)), []).append(text.get_text())
    return by_cell


def arrows(axes):
    """Where the arrows of each cell point, as (rows, columns), with their lengths."""
    by_cell = {}
    for arrow in axes.texts:
        if isinstance(arrow, Annotation):
            (x, y), (x0, y0) = arrow.xy, arrow.xyann
            by_cell.setdefault((int(y0), int(x0)), {})[
                int(np.sign(round(y - y0, 9))), int(np.sign(round(x - x0, 9)))
            ] = abs(y - y0) + abs(x - x0)
    return by_cell


class TestGrid:
    def test_cliff_walking(self):
        assert CLIFF.shape == (4, 12)
        assert CLIFF.labels == {36: "S", 47: "G"}
        assert CLIFF.closed == frozenset(range(37, 48))

    @pytest.mark.parametrize("map_name", ["4x4", "8x8"])
    def test_frozen_lake(self, map_name):
        grid = Grid.of("FrozenLake-v1", map_name=map_name)
        assert grid.labels == {0: "S", grid.size - 1: "G"}
        desc = gym.make("FrozenLake-v1", map_name=map_name).unwrapped.desc.ravel()
        assert grid.closed == {s for s, letter in enumerate(desc) if letter in (b"H", b"G")}

    @pytest.mark.parametrize(
        ("env_id", "kwargs", "state"),
        [("CliffWalking-v1", {}, 13), ("FrozenLake-v1", {"is_slippery": False, "map_name": "8x8"}, 9)],
    )
    def test_moves_go_where_the_environment_goes(self, env_id, kwargs, state):
        grid, table = Grid.of(env_id, **kwargs), gym.make(env_id, **kwargs).unwrapped.P
        for action, (down, right) in enumerate(grid.moves):
            ((_, next_state, _, _),) = table[state][action]
            assert next_state - state == down * grid.shape[1] + right

    def test_states_of_taxi_are_where_the_taxi_is(self):
        grid, cells = state_cells("Taxi-v4")
        taxi = gym.make("Taxi-v4").unwrapped
        assert len(cells) == taxi.observation_space.n
        for state in range(500):
            row, column, _, _ = taxi.decode(state)
            assert divmod(cells[state], grid.shape[1]) == (row, column)
        assert {divmod(cell, 5): letter for cell, letter in grid.labels.items()} == dict(
            zip(taxi.locs, "RGYB", strict=True)
        )
        for action, (down, right) in enumerate(grid.moves):
            ((_, after, _, _),) = taxi.P[taxi.encode(2, 2, 0, 1)][action]
            assert list(taxi.decode(after))[:2] == [2 + down, 2 + right]

    def test_states_of_other_grids_are_their_cells(self):
        grid, cells = state_cells("CliffWalking-v1")
        assert cells.tolist() == list(range(grid.size))

    def test_others_are_made_by_hand(self):
        with pytest.raises(ConfigError, match="the grid of Taxi-v4 is not known; describe it yourself"):
            Grid.of("Taxi-v4")
        with pytest.raises(ConfigError, match="must name a Gymnasium environment"):
            Grid.of("NoSuchThing-v0")


class TestVisits:
    def test_counts_stand_in_their_cells_and_panels_share_colors(self):
        counts, two = np.arange(48.0), np.arange(48.0)[::-1] * 50
        figure = visit_map({"one": counts, "two": two.reshape(4, 12)}, CLIFF)
        first, second = figure.axes[:2]
        assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("one", "two")
        assert texts(first)[0, 5] == ["5"]
        assert texts(first)[3, 0] == ["S", "36"]
        assert texts(second)[0, 0] == ["2.4k"]
        assert first.collections[0].norm is second.collections[0].norm
        np.testing.assert_array_equal(first.collections[0].get_array().ravel()[1:], counts[1:])
        assert first.collections[0].get_array().mask.ravel()[0], "what nobody saw has no colour"

    def test_replicas_are_averaged(self):
        counts = np.stack([np.full(48, 2), np.full(48, 4)])
        assert texts(visit_map({"a": counts}, CLIFF).axes[0])[1, 1] == ["3"]

    def test_nothing_visited(self):
        assert texts(visit_map({"a": np.zeros(48)}, CLIFF).axes[0])[0, 0] == ["0"]

    def test_wrong_input(self):
        with pytest.raises(ShapeError, match=r"`visits\['a'\]` must have at most one leading axis"):
            visit_map({"a": np.zeros((2, 3, 48))}, CLIFF)
        with pytest.raises(ShapeError, match=r"one number for each state, shape \(..., 48\) or \(..., 4, 12\)"):
            visit_map({"a": np.zeros(47)}, CLIFF)
        with pytest.raises(ConfigError, match="must be finite and not negative"):
            visit_map({"a": np.full(48, -1)}, CLIFF)
        with pytest.raises(ConfigError, match="at least one panel"):
            visit_map({}, CLIFF)


class TestValues:
    q = np.full((48, 4), -5.0)
    q[[24, 13]] = [-3, -1, -2, -4], [-1, -7, -1, -9]  # right; up or down

    def test_arrows_show_the_greedy_actions(self):
        ax = value_map(self.q, CLIFF).axes[0]
        directions = {cell: set(moves) for cell, moves in arrows(ax).items()}
        assert directions == {(2, 0): {RIGHT}, (1, 1): {UP, DOWN}}, "no arrow where all actions are alike"
        assert texts(ax)[2, 0] == ["−1"]
        assert texts(ax)[3, 0] == ["S", "−5"]
        assert (3, 4) not in texts(ax), "nothing is chosen on the cliff"

    def test_arrows_are_as_long_as_many_seeds_agree(self):
        other = self.q.copy()
        other[24] = [-3, -3, -2, -1]
        moves = arrows(value_map(np.stack([self.q, self.q, self.q, other]), CLIFF).axes[0])[2, 0]
        assert set(moves) == {RIGHT, LEFT}
        assert moves[RIGHT] > 1.5 * moves[LEFT]

    def test_values_alone_have_no_arrows(self):
        ax = value_map(np.arange(48.0).reshape(4, 12), CLIFF).axes[0]
        assert not arrows(ax)
        assert texts(ax)[0, 7] == ["7"]

    def test_a_grid_of_ones_own(self):
        grid = Grid((1, 3), moves=(LEFT, RIGHT), closed=frozenset({2}))
        assert set(arrows(value_map([[0, 1], [0, 1], [0, 1]], grid).axes[0])) == {(0, 0), (0, 1)}

    def test_wrong_shape(self):
        with pytest.raises(ShapeError, match=r"`values` must be of shape \(48, 4\) or \(R, 48, 4\) for actions"):
            value_map(np.zeros((48, 5)), CLIFF)

    def test_shares(self):
        q = np.array([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 2.0]], [[3.0, 3.0, 3.0]]])
        np.testing.assert_allclose(greedy_shares(q), [[1 / 6, 1 / 6, 1 / 3]])


class TestFiles:
    def test_svg_and_png(self, tmp_path):
        figure = value_map(TestValues.q, CLIFF, title="what it expects")
        save(figure, tmp_path / "new" / "a.svg", tmp_path / "a.png")
        assert ">what it expects</text>" in (tmp_path / "new" / "a.svg").read_text()
        with Image.open(io.BytesIO((tmp_path / "a.png").read_bytes())) as image:
            assert image.width == 2 * 760
            assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)

    def test_the_same_numbers_give_the_same_bytes(self, tmp_path):
        for name in ("a", "b"):
            save(visit_map({"a": np.arange(48)}, CLIFF), tmp_path / f"{name}.svg")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

    def test_another_suffix(self, tmp_path):
        with pytest.raises(ConfigError, match=r"must end in .svg or .png"):
            save(visit_map({"a": np.arange(48)}, CLIFF), tmp_path / "a.svg", tmp_path / "a.gif")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_what_is_no_count_and_no_value(wrong):
    values = np.ones(48)
    values[3] = wrong
    with pytest.raises(ConfigError, match=r"`visits\['a'\]` must be finite and not negative"):
        visit_map({"a": values}, CLIFF)
    if wrong != -1.0:
        with pytest.raises(ConfigError, match="`values` must be"):
            value_map(values, CLIFF)


def test_a_long_title_leaves_the_map_its_place():
    places = []
    for name in ("a", "prioritized.alpha-0.6.beta-0.4.block_length-8 of the second learner " * 4):
        figure = visit_map({name: np.arange(48)}, CLIFF)
        figure.draw_without_rendering()
        places.append(figure.axes[0].get_position().bounds)
    np.testing.assert_allclose(*places, atol=0.01)
    assert "…" in figure.axes[0].get_title("left")
