"""The examples run, stay short, and do what they say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_reads_from_top_to_bottom(path):
    assert len(path.read_text().splitlines()) < 120


@pytest.mark.parametrize("options", [[], ["--prioritized"]], ids=["uniform", "prioritized"])
def test_cleanrl_dqn_runs(options):
    returns = load("cleanrl_dqn")["main"](["--total-steps", "600", "--learning-starts", "200", *options])
    assert sum(returns) > 500, "each step of CartPole gives 1"


@pytest.mark.slow
def test_cleanrl_dqn_learns():
    short = "--total-steps 10000 --learning-starts 500 --train-frequency 2 --learning-rate 1e-3 --target-frequency 200"
    returns = load("cleanrl_dqn")["main"]([*short.split(), "--batch-size", "64"])
    assert np.mean(returns[-20:]) > 3 * np.mean(returns[:20])


def test_custom_sampler_is_used(capsys):
    reached = load("custom_sampler")["main"](["--episodes", "5", "--seeds", "2"])
    assert {name: runs.shape for name, runs in reached.items()} == {"Uniform": (2, 5), "NearTheEnd": (2, 5)}
    assert capsys.readouterr().out.count("of the episodes") == 2


def test_custom_sampler_prefers_the_end():
    names = load("custom_sampler")
    view = type("View", (), {"episodes": np.array([3, 3, 3, 5, 5]), "steps_in_episode": np.array([0, 1, 2, 4, 5])})
    weights = np.array([0.81, 0.9, 1.0, 0.9, 1.0])
    np.testing.assert_allclose(names["NearTheEnd"]().law(view, 8), weights / weights.sum())


class TestNearTheEnd(load("custom_sampler")["TestNearTheEnd"]):
    """The example's own test."""

    batches = 100
