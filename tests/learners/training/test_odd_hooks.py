"""Custom hooks that are, return or keep nonsense: a sentence each, as early as it can be known."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from replaylab.errors import ConfigError, SnapshotError
from replaylab.learners import Checkpoints, Hook, Metric, QLearning, TrainingConfig, train
from replaylab.replay import Uniform
from tests.learners.calls import assert_same_rows

TABLE = QLearning(batch_size=4, learning_starts=10, capacity=40, epsilon=0.3)
OWN = Metric("train/own", "Own", "none", "what is counted here")


def hook(name="Mine", **members):
    return type(name, (Hook,), members)()


def run(*hooks, seeds=(3, 5), resume=None, learner=TABLE, steps=30, **settings):
    settings = {"eval_every": 15, "eval_episodes": 1, "log_every": 6} | settings
    return train(TrainingConfig("FrozenLake-v1", learner, Uniform(), steps, **settings), seeds, hooks, resume=resume)


@pytest.mark.parametrize("step", [None, {"obs": 1}, 3])
def test_what_is_no_step_is_not_stored(step):
    with pytest.raises(ConfigError, match=r"must return an EnvStep, the step itself for instance, but returned"):
        run(hook(before_store=lambda self, run, unchanged: step))


def test_a_hook_is_there_once():
    same = hook()
    with pytest.raises(ConfigError, match=r"^`hooks` must be different ones, but got the same Mine twice$"):
        run(same, hook(), same)


@pytest.mark.parametrize("metrics", [OWN, None, ("train/own",), "train/own", [3]])
def test_invalid_metrics_are_refused(metrics):
    message = r"^`metrics` of Mine must be a list or tuple of Metric\(name, title, unit, meaning\), but got "
    with pytest.raises(ConfigError, match=message):
        run(hook(metrics=metrics))


@pytest.mark.parametrize("other", [replace(OWN, meaning="another"), Metric("train/loss", "L", "none", "mine")])
def test_two_metrics_of_one_name(other):
    with pytest.raises(ConfigError, match=r"` is a name of two metrics, of .* and of .*; give yours another$"):
        run(hook(metrics=(OWN,)), hook(metrics=(other,)))
    run(hook(metrics=(OWN,)), hook(metrics=(OWN,)))


@pytest.mark.parametrize("value", [np.zeros(3), "x", np.zeros((2, 2)), {}])
def test_what_is_not_one_number_for_each_replica(value):
    def report(self, run, step, ids):
        run.recorder.report(run.clock, {"train/own": value})

    with pytest.raises(ConfigError, match=r"^`train/own` must be a number, or one for each of the 2 replicas, but got"):
        run(hook(metrics=(OWN,), on_step=report))


@dataclass(frozen=True)
class Hooked(QLearning):
    """Its hooks are what a test says."""

    hooks_given = None

    def hooks(self):
        return self.hooks_given


@pytest.mark.parametrize("hooks", [None, [3], Hook(), [Hook]])
def test_invalid_hooks_of_a_learner_are_refused(hooks, monkeypatch):
    monkeypatch.setattr(Hooked, "hooks_given", hooks)
    with pytest.raises(ConfigError, match=r"^`hooks` of Hooked must be a list or tuple of hooks, but got "):
        run(learner=Hooked())


STATES = {
    "None": (None, "must be arrays by name"),
    "a list": ([1], "must be arrays by name"),
    "an object": ({"a": object()}, "must be arrays by name"),
    "None inside": ({"a": {"b": None}}, "must be arrays by name"),
    "ragged": ({"a": [[1], [1, 2]]}, "must be arrays by name"),
    "a path": ({"a/b": np.zeros(2)}, "must have names without `/`, but got 'a/b'"),
    "a number as name": ({3: np.zeros(2)}, "must have names without `/`, but got 3"),
    "another's": ({"returns": np.zeros(2)}, "must have its own names, but `returns` is another hook's"),
}


@pytest.mark.parametrize("kind", STATES)
def test_a_state_no_checkpoint_holds_is_reported_after_a_step(kind, tmp_path):
    state, message = STATES[kind]
    steps = []
    odd = hook(state=lambda self: state, on_step=lambda self, run, step, ids: steps.append(1))
    with pytest.raises(ConfigError, match=f"^`state` of Mine {message}"):
        run(odd, Checkpoints(tmp_path, every=25))
    assert len(steps) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [5, 7])
def test_a_state_that_does_not_get_smaller_with_the_replicas(count):
    stubborn = hook(state=lambda self: {"a": np.zeros(count)})
    with pytest.raises(ConfigError, match=r"^`state` of Mine must be \(R, ...\) with R=\d replicas, but `a` has"):
        run(stubborn, seeds=range(5), steps=None, total_episodes=6, eval_every=None)


class Summing(Hook):
    def __init__(self):
        self.total = np.zeros(2)

    def state(self):
        return {type(self).__name__: self.total}

    def restore(self, state):
        self.total = state[type(self).__name__]


class Other(Summing):
    pass


class TestGoingOn:
    @pytest.fixture
    def saved(self, tmp_path):
        run(Summing(), Checkpoints(tmp_path, every=20))
        return tmp_path

    @pytest.mark.parametrize("hooks", [(), (Other(),)])
    def test_without_a_hook(self, saved, hooks):
        with pytest.raises(SnapshotError, match=r"began with a Summing among its hooks; give `train` one again$"):
            run(*hooks, resume=saved)

    def test_with_one_more(self, saved):
        message = r"^Other finds no state in the checkpoint \('Other'\); continue with the settings and"
        with pytest.raises(SnapshotError, match=message):
            run(Summing(), Other(), resume=saved)

    def test_with_a_setting_that_counts(self, saved):
        with pytest.raises(SnapshotError, match=r"^Visits finds no state in the checkpoint"):
            run(Summing(), resume=saved, visits=True)

    @pytest.mark.parametrize("seeds", [(7, 8), (5, 3), (3, 8)])
    def test_with_other_seeds(self, saved, seeds):
        with pytest.raises(SnapshotError, match=r"is of other seeds: it can continue only with \[3, 5\], but got "):
            run(Summing(), resume=saved, seeds=seeds)

    def test_with_more_seeds(self, saved):
        with pytest.raises(SnapshotError, match=r"is another one: it began with 2 seeds, but got 3$"):
            run(Summing(), resume=saved, seeds=(3, 5, 7))

    def test_with_what_needs_no_state(self, saved):
        unbroken = run(Summing())
        again = run(hook(), Summing(), resume=saved)
        assert_same_rows(again, unbroken)
