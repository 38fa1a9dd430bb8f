"""Perceptrons above a small convolution, in the core, beside PyTorch's."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from gymnasium import spaces

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.dqn.layers import board_layers
from replaylab.learners.dqn.networks import ConvolutionalNetwork, in_layers_order
from tests.learners.dqn.batches import batch_of
from tests.learners.dqn.on_device import assert_sees_the_same, in_cores_order, pytorchs_updates

SHAPE, ACTIONS = (3, 6, 5), 4
BOX, CHOICES = spaces.Box(0, 1, SHAPE, np.bool_), spaces.Discrete(ACTIONS)
SETTINGS = DQN(
    filters=6, hidden=(10,), learning_rate=1e-6, batch_size=8, learning_starts=8, gamma=0.9, max_grad_norm=None
)
VARIANTS = {
    "plain": {},
    "simple": {"double": False, "loss": "squared"},
    "dueling": {"dueling": True, "hidden": (9, 8)},
    "linear": {"hidden": (), "filters": 1},
    "clipped gradient": {"max_grad_norm": 0.05},
    "polyak": {"tau": 0.1, "target_period": 1},
}


def agents(seeds, space, actions, **changes):
    return replace(SETTINGS, **changes).agents(space, actions, seeds)


@cache
def autograds(variant, rows):
    """PyTorch's part, the same beside every kernel."""
    learner = replace(SETTINGS, **VARIANTS[variant])
    batches = [batch_of(2, rows, update, BOX, ACTIONS) for update in range(3)]
    return learner, BOX, CHOICES, batches, pytorchs_updates(learner, BOX, CHOICES, batches)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [1, 19, 32])
def test_gradients_equal_autograds(variant, rows, kernels):
    assert_sees_the_same(*autograds(variant, rows))


def test_the_published_network_equals_double_precision(kernels):
    """16 filters and 128 units on MinAtar's board; the core's single precision beside PyTorch's float64."""
    shape = (4, 10, 10)
    learner = DQN(filters=16, hidden=(128,), max_grad_norm=None, learning_rate=1e-12, loss="squared")
    space = spaces.Box(0, 1, shape, np.bool_)
    several = learner.agents(space, CHOICES, [1])
    layers = board_layers(16, (128,), space)
    network = ConvolutionalNetwork(shape, layers, ACTIONS).double()
    sizes = [p.numel() for p in network.parameters()]
    assert several.core.online.shape == (1, sum(sizes)) == (1, 16 * 37 + 128 * 1025 + 4 * 129)
    with torch.no_grad():
        for p, block in zip(network.parameters(), np.split(several.core.online[0], np.cumsum(sizes)[:-1]), strict=True):
            p.copy_(in_layers_order(torch.from_numpy(block), p) if p.ndim > 1 else torch.from_numpy(block))
    batch = batch_of(1, 32, space=space, actions=ACTIONS)
    q, q_next = (network(torch.from_numpy(obs[0])) for obs in (batch.obs, batch.next_obs))
    discount = torch.from_numpy(0.99 * ~batch.terminated[0])
    y = torch.from_numpy(batch.reward[0]) + discount * q_next.max(1).values
    td_error = y.detach() - q[torch.arange(32), torch.from_numpy(batch.action[0])]
    (torch.from_numpy(batch.weight[0]) * td_error**2 / 2).mean().backward()
    update = several.update(batch)
    np.testing.assert_allclose(update.td_error[0], td_error.detach(), rtol=1e-4, atol=1e-6)
    gradient = np.concatenate([in_cores_order(p.grad) for p in network.parameters()])
    np.testing.assert_allclose(several.core.gradients[0], gradient, rtol=1e-4, atol=1e-6 * np.abs(gradient).max())


def test_a_filter_learns_what_only_a_pattern_tells():
    """The reward is whether a cross is on the board or five other cells, wherever: no cell by itself tells."""
    rng = np.random.default_rng(0)
    learner = DQN(filters=8, hidden=(32,), gamma=0.0, learning_rate=3e-3, target_period=10)
    space = spaces.Box(0, 1, (1, 8, 8), np.bool_)
    several = learner.agents(space, CHOICES, [0, 1])

    cross, corners = np.zeros((2, 3, 3), bool)
    cross[1] = cross[:, 1] = corners[::2, ::2] = corners[1, 1] = True

    def boards(rows):
        obs, reward = np.zeros((2, rows, 1, 8, 8), bool), rng.integers(2, size=(2, rows))
        for r, b in np.ndindex(2, rows):
            y, x = rng.integers(6, size=2)
            obs[r, b, 0, y : y + 3, x : x + 3] = cross if reward[r, b] else corners
        return obs, reward

    for update in range(300):
        obs, reward = boards(32)
        batch = batch_of(2, 32, update, space, ACTIONS)
        batch.obs[:], batch.reward[:] = obs, reward
        batch.weight[:] = 1
        several.update(batch)
    obs, reward = boards(100)
    q = several.q_values(obs).mean(-1)
    assert ((q > 0.5) == (reward > 0.5)).mean() > 0.95


@pytest.mark.parametrize(
    ("changes", "space", "message"),
    [
        ({"filters": -1}, BOX, "`filters` of DQN must be at least 0, but got -1"),
        ({"filters": True}, BOX, "`filters` of DQN must be a whole number, but got True"),
        ({"module": lambda *_: None}, BOX, "`filters` of DQN must be 0 where `module` is given, but got 6"),
        ({}, spaces.Box(0, 1, (4,)), "`filters` of DQN need observations in a Box"),
        ({}, spaces.Box(0, 1, (4, 2, 10)), "of at least 3 × 3"),
        ({}, spaces.Discrete(4), "`filters` of DQN need observations in a Box"),
    ],
)
def test_what_cannot_be_is_reported(changes, space, message):
    with pytest.raises(ConfigError, match=message):
        replace(SETTINGS, **changes).agents(space, CHOICES, [0])
