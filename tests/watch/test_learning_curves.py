"""Curves over episodes."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Metrics
from replaylab.plotting.palette import line_styles
from replaylab.watch import by_episode, ewma, learning_curves


def test_episodes_of_each_seed_in_a_row():
    metrics = Metrics(
        {
            "seed": np.array([7, 3, 7, 3, 7, 5]),
            "step": np.array([4, 5, 8, 8, 9, 9]),
            "metric": np.array(["rollout/ep_rew"] * 5 + ["train/loss"]),
            "value": np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]),
        }
    )
    nan = np.nan
    np.testing.assert_array_equal(by_episode(metrics), [[2, 4, nan], [nan, nan, nan], [1, 3, 5]])
    assert by_episode(metrics, "eval/mean_reward").shape == (3, 0)
    with pytest.raises(ConfigError, match=r"got 'rollout/ep_rev'; did you mean `rollout/ep_rew`"):
        by_episode(metrics, "rollout/ep_rev")


def test_each_seed_thin_and_their_mean_bold():
    none, uniform = np.random.default_rng(0).normal(size=(2, 4, 50))
    (ax,) = learning_curves({"none": none, "uniform": uniform}, span=10).axes
    *seeds, mean = ax.lines[5:]
    assert len(ax.lines) == 10
    np.testing.assert_allclose(mean.get_ydata(), ewma(uniform, 10).mean(0))
    for line, run in zip(seeds, ewma(uniform, 10), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run)
        assert line.get_linewidth() < 1 < mean.get_linewidth()
    assert mean.get_color() == line_styles(["none", "uniform"], "none")["uniform"].light
    assert ax.lines[4].get_linestyle() == "--", "the baseline"
    np.testing.assert_array_equal(mean.get_xdata(), np.arange(1, 51))


def test_the_mean_ends_with_the_first_seed():
    runs = np.ones((2, 20))
    runs[1, 12:] = np.nan
    (ax,) = learning_curves({"a": runs}).axes
    assert np.isfinite(ax.lines[-1].get_ydata()).sum() == 12


def test_no_such_baseline():
    with pytest.raises(ConfigError, match=r"`baseline` must be one of the strategies given, \['a'\], but got 'b'"):
        learning_curves({"a": [1.0]}, baseline="b")
    with pytest.raises(ConfigError, match="but got None"):
        learning_curves({})


def test_names_are_not_taken_for_anything_else():
    figure = learning_curves({"_own": [1.0, 2.0], "a$_1$": [2.0, 3.0]})
    assert [entry.get_text() for entry in figure.legends[0].get_texts()] == ["_own", "a$_1$"]
    assert not any(entry.get_parse_math() for entry in figure.legends[0].get_texts())
