"""Errors of steps that no batch held: exact, without a trace, and given to the sampler where it is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from replaylab.errors import ConfigError, SpecError
from replaylab.learners import DQN, Hook, Refreshed, TrainingConfig, fresh_feedback
from replaylab.learners.api.protocols import Agents, reducible_loss, target_values
from replaylab.learners.training.train import train as train_config
from replaylab.replay import Prioritized, ReLo, Uniform
from replaylab.study import Spec
from replaylab.study.plan.chunks import plan
from tests.learners.calls import assert_same_rows, train
from tests.study.tiny import table

DEEP = DQN(hidden=(8,), batch_size=8, learning_starts=8, capacity=40, target_period=7, learning_rate=1e-2)
SHORT = {"total_episodes": 6, "eval_every": None, "log_every": 2}


class Look(Hook):
    """Compares the errors of all stored steps with the slow way, after every update."""

    def __init__(self, check):
        self.check, self.seen = check, 0

    def on_update(self, run, update, batch):
        ids = np.stack(run.replay.stored_ids())
        before = run.agents.state()
        self.check(run, ids, fresh_feedback(run, ids))
        for name, array in run.agents.state().items():
            np.testing.assert_array_equal(array, before[name])
        self.seen += 1


def slow(run, ids):
    """δ of stored steps under the online and under the target network, one target y for both, in float64."""
    stored = run.replay.get(ids)

    def q(values, obs, action):
        return np.take_along_axis(values(obs).astype(np.float64), action[..., None], axis=-1)[..., 0]

    best = run.agents.q_values(stored["next_obs"]).argmax(-1)
    y = stored["reward"] + 0.99 * ~stored["terminated"] * q(run.agents.target_q_values, stored["next_obs"], best)
    both = (run.agents.q_values, run.agents.target_q_values)
    return [y - q(values, stored["obs"], stored["action"]) for values in both]


def loss(delta):
    return np.where(np.abs(delta) <= 1, delta**2 / 2, np.abs(delta) - 0.5)


def test_of_a_module_that_draws_they_are_what_an_update_gives_back():
    """Dropout: Q(s, a) of the TD error is that of training, and so must be what is put in place of it."""

    def module(space, num_actions):
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, num_actions))

    class Both(Hook):
        def before_turn(self, run):
            if run.agents.updates == 10:
                ids = np.stack(run.replay.stored_ids())[:, :8]
                batch = run.replay.as_batch(ids)
                self.fresh, targets = fresh_feedback(run, ids), target_values(run.agents, batch)
                self.learned = reducible_loss(run.agents, run.agents.update(batch), targets)

    both = Both()
    learner = replace(DEEP, module=module)
    train_config(TrainingConfig("CartPole-v1", learner, ReLo(), 30, eval_every=None), [3], hooks=[both])
    np.testing.assert_allclose(both.fresh, both.learned, rtol=0, atol=1e-5)


def test_they_are_the_errors_of_the_networks_as_they_are():
    def check(run, ids, found):
        np.testing.assert_allclose(found, slow(run, ids)[0], rtol=0, atol=1e-4)

    look = Look(check)
    train_config(TrainingConfig("CartPole-v1", DEEP, Prioritized(), 60, eval_every=None), [3, 4], hooks=[look])
    assert look.seen == 53


def test_of_relo_they_are_differences_of_losses():
    def check(run, ids, found):
        online, target = slow(run, ids)
        np.testing.assert_allclose(found, loss(online) - loss(target), rtol=0, atol=1e-4)

    train_config(TrainingConfig("CartPole-v1", DEEP, ReLo(), 60, eval_every=None), [3, 4], hooks=[Look(check)])


def test_looking_changes_nothing():
    hooks = [[], [Look(lambda *_: None)]]
    config = TrainingConfig("CartPole-v1", DEEP, Prioritized(), 60, eval_every=None, log_every=5, measure_every=20)
    plain, looked = (train_config(config, [3, 4], hooks=own).columns for own in hooks)
    for name, column in plain.items():
        np.testing.assert_array_equal(looked[name], column)


@pytest.mark.parametrize("sampler", [Prioritized(alpha=0.7, beta=0.4, epsilon=0.01), ReLo(alpha=0.7, beta=0.4)])
def test_refreshed_priorities_are_those_of_the_errors_now(sampler):
    """With so many rows every stored step is among them: one is left out with a chance of e⁻¹⁰⁰."""

    def check(run, ids, found):
        wanted = np.maximum(found, 0) if isinstance(sampler, ReLo) else np.abs(found)
        wanted = (wanted + sampler.epsilon) ** sampler.alpha
        distribution = run.replay.probabilities(ids)
        np.testing.assert_allclose(distribution, wanted / wanted.sum(1, keepdims=True), rtol=1e-4, atol=1e-9)

    look = Look(check)
    config = TrainingConfig("CartPole-v1", DEEP, Refreshed(sampler, rows=4_000), 30, eval_every=None)
    train_config(config, [3, 4], hooks=[look])
    assert look.seen == 23


def test_where_draws_do_not_depend_on_priorities_learning_stays_as_it_was():
    even = Prioritized(alpha=0.0, beta=0.4)
    plain, refreshed = (train("CartPole-v1", DEEP, one, [3, 4], **SHORT) for one in (even, Refreshed(even, every=2)))
    assert_same_rows(refreshed, plain)


def test_in_a_study_file():
    part = {"type": "refreshed", "rows": 16, "sampler": {"type": "rank_based", "alpha": 0.5}}
    spec = Spec.from_table(table(strategies__fresh=part))
    whole = spec.strategies["fresh"].options
    assert whole["sampler"]["type"] == "rank_based"
    assert whole["sampler"]["normalize"] == "buffer", "with every option"
    population = plan(spec)[-1]
    assert population.configuration().sampler.rows == 16
    again = Spec.model_validate_json(spec.model_dump_json())
    assert [p.id for p in plan(again)] == [p.id for p in plan(spec)]
    with pytest.raises(SpecError, match=r"`strategies.fresh.sampler` must be a table with a `type`"):
        Spec.from_table(table(strategies__fresh={"type": "refreshed", "sampler": "uniform"}))


class Mute(Agents):
    """Agents that nobody can look into."""


def test_what_cannot_be_refreshed():
    with pytest.raises(ConfigError, match=r"`sampler` of Refreshed must be one that takes feedback"):
        Refreshed(Uniform())
    with pytest.raises(ConfigError, match="need `probe` of the agents, but Mute has no such method"):
        Refreshed(Prioritized()).of("CartPole-v1", {}, Mute())
    with pytest.raises(ConfigError, match=r"`rows` of Refreshed must be at least 1"):
        replace(Refreshed(Prioritized()), rows=0)
