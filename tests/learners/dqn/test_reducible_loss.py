"""ReLo is fed what it is defined by: a row's loss under the online network less that under the target network."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from torch import nn

from replaylab.errors import ConfigError
from replaylab.learners import DQN, DQNAsPublished, QLearning
from replaylab.learners.api.protocols import Update, reducible_loss, target_values
from replaylab.replay import CustomSampler, Mixture, Prioritized, ReLo, ReplayBuffer, Uniform
from tests.learners.calls import train
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of

SETTINGS = DQN(hidden=(16,), batch_size=8, learning_starts=20, gamma=0.9, target_period=3, capacity=200)


def network(space, actions):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(space.shape)), 12), nn.ReLU(), nn.Linear(12, actions))


def loss(kind, delta):
    huber = np.where(np.abs(delta) <= 1, delta**2 / 2, np.abs(delta) - 0.5)
    return huber if kind == "huber" else delta**2 / 2


def explicit(learner, online, target, batch):
    """The difference of losses to one target y, in float64, from the Q functions before an update."""

    def chosen(q, action):
        return np.take_along_axis(q.astype(np.float64), action[..., None], axis=-1)[..., 0]

    best = (online(batch.next_obs) if learner.double else target(batch.next_obs)).argmax(-1)
    y = batch.reward + learner.gamma * ~batch.terminated * chosen(target(batch.next_obs), best)
    q_online, q_target = (chosen(q(batch.obs), batch.action) for q in (online, target))
    return loss(learner.loss, y - q_online) - loss(learner.loss, y - q_target)


def losses(batch):
    """The size of the losses, of which the differences are taken in float32."""
    return 1.0 + float((batch.reward**2).max()) / 2


def moved(agents):
    """Some updates, so that the target network is not the online one."""
    for k in range(5):
        agents.update(batch_of(2, seed=k))
    return agents


@pytest.mark.parametrize("module", [None, network], ids=["perceptron", "module"])
@pytest.mark.parametrize("kind", ["huber", "squared"])
@pytest.mark.parametrize("double", [True, False])
def test_it_is_the_explicit_difference(module, kind, double):
    learner = replace(SETTINGS, loss=kind, double=double, module=module, learning_rate=3e-2)
    agents = moved(learner.agents(BOX, ACTIONS, [0, 1]))
    still = learner.agents(BOX, ACTIONS, [0, 1])
    still.restore(agents.state())
    as_online = learner.agents(BOX, ACTIONS, [0, 1])
    as_online.restore(agents.state())
    as_online.copy_target(np.ones(2, bool))  # a target network whose values are the online network's
    batch = batch_of(2, seed=9)
    wanted = explicit(learner, still.q_values, still.target_q_values, batch)
    np.testing.assert_array_equal(as_online.target_q_values(batch.obs), agents.q_values(batch.obs))
    old = target_values(agents, batch)
    difference = reducible_loss(agents, agents.update(batch), old)
    np.testing.assert_allclose(difference, wanted, rtol=0, atol=1e-6 * losses(batch))
    assert (difference < 0).any()
    assert (difference > 0.01).any()


def test_looking_at_the_target_network_changes_nothing():
    agents, same = (moved(SETTINGS.agents(BOX, ACTIONS, [0, 1])) for _ in range(2))
    agents.target_q_values(batch_of(2).obs)
    for name, array in same.state().items():
        np.testing.assert_array_equal(agents.state()[name], array)


@pytest.fixture
def fed(monkeypatch):
    """Return the feedback to the buffer in a training run, and its updates."""
    fed_values, updates, write = [], [], ReplayBuffer.update_priorities

    def update_priorities(self, ids, td_error=None, **more):
        fed_values.append(np.array(td_error))
        return write(self, ids, td_error, **more)

    make = DQN.agents

    def agents(self, *args):
        population = make(self, *args)
        update = population.update

        def watched(batch):
            twin = make(self, *args)
            twin.restore(population.state())
            updates.append((explicit(self, twin.q_values, twin.target_q_values, batch), seen := update(batch)))
            return seen

        population.update = watched
        return population

    monkeypatch.setattr(ReplayBuffer, "update_priorities", update_priorities)
    monkeypatch.setattr(DQN, "agents", agents)
    return fed_values, updates


@dataclass(frozen=True)
class Reducible(CustomSampler):
    """A custom sampler that asks for the same."""

    wants_feedback = True
    feedback_kind = "reducible_loss"

    def distribution(self, view, batch_size):
        wanted = np.maximum(view.priorities, 0.0) + 1e-3
        return wanted / wanted.sum()


SAMPLERS = [ReLo(), Mixture((Uniform(), ReLo())), Reducible()]


@pytest.mark.parametrize(
    ("module", "sampler"),
    [
        *((None, sampler) for sampler in SAMPLERS),
        (network, SAMPLERS[1]),
        *(pytest.param(network, SAMPLERS[k], marks=pytest.mark.slow) for k in (0, 2)),
    ],
    ids=lambda value: "perceptron" if value is None else "module" if value is network else str(value),
)
def test_training_feeds_it(fed, sampler, module):
    learner = replace(SETTINGS, module=module, learning_rate=1e-2)
    train("CartPole-v1", learner, sampler, [3, 4], 45, eval_every=None)
    fed_values, updates = fed
    assert len(fed_values) == len(updates) == 26
    for values, (wanted, _) in zip(fed_values, updates, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=2e-6)
    assert any((values < 0).any() for values in fed_values)


def test_other_samplers_are_fed_td_errors(fed):
    train("CartPole-v1", SETTINGS, Prioritized(), [3, 4], 60, eval_every=None)
    fed_values, updates = fed
    for values, (_, seen) in zip(fed_values, updates, strict=True):
        assert isinstance(seen, Update)
        np.testing.assert_array_equal(values, seen.td_error)


def test_learners_without_a_target_network_are_refused():
    learner = QLearning(batch_size=4, learning_starts=10)
    message = r"ReLo\(.*\) wants L_online − L_target.*QLearning.*no target network.*`Prioritized`"
    with pytest.raises(ConfigError, match=message):
        train("CliffWalking-v1", learner, ReLo(), [0], 100)
    train("CliffWalking-v1", QLearning(), ReLo(), [0], 40, eval_every=None)  # replays nothing


def test_a_kind_of_feedback_that_nobody_knows_is_refused(monkeypatch):
    monkeypatch.setattr(Reducible, "feedback_kind", "loss")
    with pytest.raises(ConfigError, match=r'`feedback_kind` of Reducible\(\) must be "td_error" or "reducible_loss"'):
        train("CartPole-v1", SETTINGS, Reducible(), [0], 100)


def test_priorities_that_are_never_refreshed_are_td_errors():
    learner = DQNAsPublished(**{**vars(SETTINGS), "stale_priorities": True})
    with pytest.raises(ConfigError, match=r"`stale_priorities`.*TD error.*ReLo"):
        train("CartPole-v1", learner, ReLo(), [0], 100)


def test_a_mixture_of_parts_with_different_wants_is_refused():
    with pytest.raises(ConfigError, match=r"want different feedback \(reducible_loss, td_error\), but all get the"):
        train("CartPole-v1", SETTINGS, Mixture((Prioritized(), ReLo())), [0], 100)
    assert Mixture((Uniform(), ReLo())).feedback_kind == "reducible_loss"
    assert Mixture((Uniform(), Uniform())).feedback_kind == "td_error"
