"""Hooks hear of what happens in its order, steer what they may, and cost nothing where they define nothing."""

from dataclasses import replace

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import Hook, Metric, QLearning, TrainingConfig
from replaylab.learners.api.hooks import EnvStep, TrainingRun
from replaylab.learners.training.hooks import EVENTS, HookList
from replaylab.learners.training.loop import turn
from replaylab.learners.training.state import Run
from replaylab.replay import Prioritized, Uniform
from tests.learners.calls import train

TABLE = QLearning(batch_size=4, learning_starts=10, capacity=40, epsilon=0.3)


class Listening(Hook):
    """Notes every event, and how often it came."""

    def __init__(self):
        self.heard = []

    def on_metrics(self, now, values):
        self.heard.append(("on_metrics", now))

    def keep(self, run, rows):
        self.heard.append(("keep", len(run.seeds)))


def note(name):
    def event(self, run, *arguments):
        self.heard.append((name, run.clock.steps))
        return arguments[0] if name == "before_store" else None

    return event


for name in set(EVENTS) - {"on_metrics"}:
    setattr(Listening, name, note(name))


def run(hooks, sampler=None, seeds=(3, 5), learner=TABLE, **options):
    options = {"total_steps": 12, "eval_every": 12, "eval_episodes": 1, "log_every": 6} | options
    return train("FrozenLake-v1", learner, sampler or Uniform(), seeds, hooks=hooks, **options)


def test_events_come_in_the_order_of_a_turn():
    hook = Listening()
    run([hook])
    step = [("before_turn", 0), ("before_store", 1), ("on_step", 1), ("after_turn", 1)]
    assert hook.heard[:5] == [("on_begin", 0), *step]
    last = hook.heard[hook.heard.index(("before_turn", 11)) :]
    turns = [
        "before_turn",
        "before_store",
        "on_step",
        "on_draw",
        "on_update",
        "on_metrics",
        "after_learning",
        "on_metrics",
    ]
    assert [name for name, _ in last] == [*turns, "after_turn", "on_end"]
    assert [name for name, _ in hook.heard].count("on_update") == 3


def test_replicas_that_end_leave_their_hooks():
    hook = Listening()
    run([hook], total_steps=None, total_episodes=3, log_every=3, seeds=(3, 5, 9))
    names = [name for name, _ in hook.heard]
    assert names.count("keep") == names.count("on_end") - 1
    assert names[-1] == "on_end"


def test_a_hook_without_an_event_is_not_called_for_it():
    config = TrainingConfig("FrozenLake-v1", TABLE, Uniform(), 10, eval_every=None)
    plain, watched = HookList(config, [0])._functions, HookList(config, [0], [Hook(), Listening()])._functions
    for event in EVENTS:
        assert len(watched[event]) == len(plain[event]) + 1
    assert plain["before_turn"] == plain["before_store"] == []


def test_a_run_is_what_hooks_see():
    started = Run(TrainingConfig("FrozenLake-v1", TABLE, Uniform(), 10), [0])
    started.begin()
    turn(started)
    seen: TrainingRun = started
    assert seen.clock.steps == seen.replay.size[0] == 1


@pytest.mark.filterwarnings("ignore::replaylab.learners.training.configuration.BudgetWarning")  # it is to learn nothing
def test_a_hook_changes_what_is_stored_and_no_return():
    class Paid(Hook):
        def before_store(self, run, step: EnvStep):
            return replace(step, reward=step.reward - 1.0)

        def on_end(self, run, over):
            self.rewards = run.replay.columns["reward"][:, :12].copy()

    paid = Paid()
    late = replace(TABLE, learning_starts=100)  # online it learns from the true steps, so both runs take the same
    changed, plain = run([paid], learner=late), run([], learner=late)
    assert (paid.rewards <= 0.0).all()
    assert (paid.rewards < 0.0).any()
    np.testing.assert_array_equal(changed.of("rollout/ep_rew")[1], plain.of("rollout/ep_rew")[1])


def test_a_hook_may_stop_the_feedback():
    class Deaf(Hook):
        def on_begin(self, run):
            assert run.feedback == "td_error"
            run.feedback = None

        def on_end(self, run, over):
            self.distribution = run.replay.probabilities(np.arange(12)[None])

    deaf = Deaf()
    run([deaf], Prioritized(), seeds=[3])
    np.testing.assert_allclose(deaf.distribution, 1 / 12)


def test_a_metric_that_nobody_registered_is_refused():
    class Own(Hook):
        def after_learning(self, run):
            run.recorder.report(run.clock, {"train/own": 3.0})

    message = r"`train/own` is not a registered metric; list it in the attribute `metrics`"
    with pytest.raises(ConfigError, match=message):
        run([Own()])
    Own.metrics = (Metric("train/own", "Own", "none", "what is counted here"),)
    metrics = run([Own()])
    assert metrics.of("train/own", 5)[1].tolist() == [3.0] * 3


def test_the_state_of_a_hook_is_in_checkpoints(tmp_path):
    class Sum(Hook):
        total = np.zeros(2)

        def on_step(self, run, step, ids):
            self.total = self.total + step.obs

        def state(self):
            return {"sum": self.total}

        def restore(self, state):
            self.total = state["sum"]

    unbroken, again = Sum(), Sum()
    run([unbroken], save=tmp_path, save_every=5)
    run([again], resume=tmp_path)
    assert unbroken.total.any()
    np.testing.assert_array_equal(again.total, unbroken.total)
