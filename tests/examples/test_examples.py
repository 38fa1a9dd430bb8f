"""The examples run, stay short, and do what they say."""

import os
import runpy
import signal
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from tests.distributed.processes import descendants
from tests.study.execution.test_study_run import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_reads_from_top_to_bottom(path):
    assert len(path.read_text().splitlines()) < 140


@pytest.mark.parametrize("options", [[], ["--prioritized"]], ids=["uniform", "prioritized"])
def test_cleanrl_dqn_runs(options):
    returns = load("cleanrl_dqn")["main"](["--total-steps", "600", "--learning-starts", "200", *options])
    assert sum(returns) > 500, "each step of CartPole gives 1"


@pytest.mark.slow
def test_cleanrl_dqn_learns():
    short = "--total-steps 10000 --learning-starts 500 --train-frequency 2 --learning-rate 1e-3 --target-frequency 200"
    returns = load("cleanrl_dqn")["main"]([*short.split(), "--batch-size", "64"])
    assert np.mean(returns[-20:]) > 3 * np.mean(returns[:20])


@pytest.fixture
def little_optimized():
    """XLA optimizes for longer than a few steps take."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow  # JAX compiles for long, for tests/integrations/test_sbx.py, too
@pytest.mark.usefixtures("little_optimized")
@pytest.mark.parametrize("options", [[], ["--uniform"]], ids=["prioritized", "uniform"])
def test_flax_dqn_runs(options):
    returns = load("flax_dqn")["main"](["--total-steps", "300", "--learning-starts", "200", *options])
    assert sum(returns) > 200, "each step of CartPole gives 1"


def test_flax_dqn_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(
        SystemExit, match=r'^optax is missing. Run: pip install flax gymnasium optax "replaylab\[jax\]"$'
    ):
        load("flax_dqn")


@pytest.mark.slow
def test_flax_dqn_learns():
    returns = load("flax_dqn")["main"](["--total-steps", "12000"])
    assert np.mean(returns[-20:]) > 3 * np.mean(returns[:20])


@pytest.mark.parametrize("options", [[], ["--prioritized"]], ids=["uniform", "prioritized"])
def test_td3_pendulum_runs(options):
    curve = load("td3_pendulum")["main"](["--steps", "40", "--learning-starts", "20", "--envs", "4", *options])
    assert len(curve) == 10
    assert all(-17 < reward < 0 for reward in curve)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--prioritized"]], ids=["uniform", "prioritized"])
def test_td3_pendulum_learns(options):
    curve = load("td3_pendulum")["main"](["--steps", "1500", *options])
    assert curve[-1] > curve[0] / 3, "rewards are negative"


@pytest.mark.parametrize("library", ["tianshou", "torchrl"])
@pytest.mark.filterwarnings("ignore")  # these libraries warn of themselves
def test_guides_to_other_libraries_run(library):
    pytest.importorskip(library)
    assert len(load(f"{library}_dqn")["buffer"]) == 500


def test_noisy_digits_compares_with_uniform(capsys):
    pytest.importorskip("sklearn")
    accuracy = load("noisy_digits")["main"](["--seeds", "2", "--epochs", "2"])
    assert all(values.shape == (2,) and (values > 0.2).all() for values in accuracy.values()), "0.1 is chance"
    assert capsys.readouterr().out.count("against uniform: ") == 2


def test_noisy_digits_has_wrong_labels_in_training_only():
    sklearn = pytest.importorskip("sklearn.datasets")
    _, y, _, test_y = load("noisy_digits")["data_of"](0)
    labels = sklearn.load_digits().target[np.random.default_rng(0).permutation(1797)]
    assert (y.numpy() != labels[:1000]).sum() == 300
    np.testing.assert_array_equal(test_y, labels[1000:])


def test_custom_sampler_is_used(capsys):
    reached = load("custom_sampler")["main"](["--episodes", "5", "--seeds", "2"])
    assert {name: runs.shape for name, runs in reached.items()} == {"Uniform": (2, 5), "NearTheEnd": (2, 5)}
    assert capsys.readouterr().out.count("of the episodes") == 2


def test_custom_sampler_prefers_the_end():
    names = load("custom_sampler")
    view = type("View", (), {"episodes": np.array([3, 3, 3, 5, 5]), "steps_in_episode": np.array([0, 1, 2, 4, 5])})
    weights = np.array([0.81, 0.9, 1.0, 0.9, 1.0])
    np.testing.assert_allclose(names["NearTheEnd"]().distribution(view, 8), weights / weights.sum())


@pytest.mark.slow
def test_cliff_walking(tmp_path, capsys):
    """Pictures and films are also tested in tests/watch, the notebook's run in tests/notebooks/test_originals.py."""
    load("cliff_walking")["main"](["--seeds", "10", "--episodes", "40", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "greedy: " in out
    assert out.count("p = 0.00") == 2, "replay changes where the agents go (p = 0.0001 with 30 seeds)"
    for name in ("visits.svg", "visits.png", "values_without_replay.svg", "values_replay_as_many_updates.svg"):
        assert (tmp_path / name).stat().st_size > 10_000
    assert {path.suffix for path in tmp_path.glob("*replay*.*")} == {".svg", ".mp4"}
    assert len(list(tmp_path.glob("without_replay_frames/*.png"))) > 13


def test_cliff_walking_counts_every_step_of_its_episodes():
    names = load("cliff_walking")
    for learner in names["LEARNERS"].values():
        visits, q = names["train"](learner, [3, 4], 1)
        assert (visits[:, 36] >= 1).all(), "the first step is at the start"
        assert not visits[:, 37:47].any(), "who steps off the cliff is put back to the start"
        assert (visits[:, 47] == 1).all(), "one episode, which ends at the goal"
        together = names["train"](learner, [4], 1)
        np.testing.assert_array_equal(visits[1], together[0][0])
        np.testing.assert_array_equal(q[1], together[1][0])


def test_taxi_runs(tmp_path):
    returns = load("taxi")["main"](["--seeds", "3", "--episodes", "3", "--out", str(tmp_path)])
    assert (tmp_path / "curves.svg").exists()
    assert all(runs.shape == (3, 3) and np.isfinite(runs).all() for runs in returns.values())
    assert len(returns) == 3


@pytest.mark.slow
def test_taxi_learns_with_replay_and_not_only_by_more_updates(tmp_path):
    """That replay learns faster is also tested in tests/notebooks/test_originals.py."""
    returns = load("taxi")["main"](["--seeds", "3", "--episodes", "40", "--out", str(tmp_path)])
    assert all(runs.shape == (3, 40) for runs in returns.values())
    none, more, replayed = (runs.mean(1) for runs in returns.values())
    assert (replayed > more).all()
    assert (replayed > none).all()


class TestNearTheEnd(load("custom_sampler")["TestNearTheEnd"]):
    """The example's own test."""

    batches = 100


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_ape_x_trains_with_initial_priorities_of_actors(ray_here, capfd):
    names = load("ape_x")
    options = "--actors 2 --envs 2 --steps 600 --learning-starts 200"
    metrics = names["main"](options.split())
    assert metrics.of("eval/mean_reward")[0].tolist() == [60 * k for k in range(1, 11)]
    assert "step 600: mean return" in capfd.readouterr().out


def test_ape_x_computes_n_step_errors():
    """Two environments with three steps; the first ends at its second step. Q(s, a) is 10·s for action 1, else 0."""
    names = load("ape_x")
    agents = type("Agents", (), {"index_of": staticmethod(lambda action: action)})()
    agents.q_values = lambda obs: np.stack([np.zeros(obs.shape[:2]), 10.0 * obs[..., 0]], axis=-1)
    state = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    columns = {"obs": state[..., None], "next_obs": state[..., None] + 1, "reward": np.ones((3, 2))}
    columns["terminated"] = np.array([[False, False], [True, False], [False, False]])
    columns |= {"truncated": np.zeros((3, 2), bool), "action": np.array([[1, 0], [1, 1], [0, 1]])}
    error = names["initial_td_errors"](agents, 0.5, 2, columns)
    first = [1 + 0.5 * 1 - 10, 1 - 20, 1 + 0.5 * 40 - 0]
    second = [1 + 0.5 * (1 + 0.5 * 70) - 0, 1 + 0.5 * (1 + 0.5 * 80) - 60, 1 + 0.5 * 80 - 70]
    np.testing.assert_allclose(error.T, [first, second])


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_data_parallel_learners_survive_kills(ray_here, tmp_path, capfd):
    """One of two is killed after the first checkpoint; the same command then ends at once with the same networks."""
    pytest.importorskip("torch")
    main, arguments = load("data_parallel_dqn")["main"], ["--steps", "4800", "--folder", str(tmp_path)]

    def kill():
        wait_for((tmp_path / "learner.pt").exists, 120.0)
        os.kill(next(pid for pid, line in descendants().items() if "Learner.run" in line), signal.SIGKILL)

    killing = Thread(target=kill)
    killing.start()
    (first, returns), (second, _) = main(arguments)
    killing.join()
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
    assert len(returns) > 5
    assert "failure 1 of at most 10" in capfd.readouterr().out
    for parameters, _ in main(arguments):
        np.testing.assert_array_equal(parameters, first)
