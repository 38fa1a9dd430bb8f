"""Areas and grids against hand-worked examples."""

import numpy as np
import pytest

from replaylab import statistics as st
from replaylab.errors import ConfigError


def test_area_of_known_shapes():
    steps = np.array([0, 10, 40])
    assert st.area_under_curve(steps, [3.0, 3.0, 3.0]) == 3.0
    assert st.area_under_curve(steps, steps) == 20.0
    np.testing.assert_allclose(st.area_under_curve(steps, [[0, 4, 4], [1, 1, 1]]), [(2 * 10 + 4 * 30) / 40, 1.0])
    assert st.area_under_curve([7], [5.0]) == 5.0


def test_on_grid_carries_the_newest_value_forward():
    np.testing.assert_array_equal(st.on_grid([3, 5, 5, 9], [1, 2, 3, 4], [0, 3, 4, 5, 8, 9, 99]), [1, 1, 1, 3, 3, 4, 4])


def test_scores_are_0_and_1_at_their_ends():
    np.testing.assert_allclose(st.normalised_score([[-200.0, -100.0], [-150.0, 0.0]], -200, -100), [[0, 1], [0.5, 2]])
    with pytest.raises(ConfigError, match=r"`low` and `high` must differ, but got low=3\.0 and high=3\.0"):
        st.normalised_score([1.0], 3.0, 3.0)
