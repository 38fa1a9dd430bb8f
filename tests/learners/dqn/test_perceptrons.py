import re
import sys
import threading
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from gymnasium import spaces

from replaylab import _core
from replaylab.errors import ConfigError, ShapeError
from replaylab.learners import DQN, SGD, Adam, RMSprop
from replaylab.replay import Batch, Linear
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of, part
from tests.learners.dqn.on_device import assert_sees_the_same, on_device, pytorchs_updates

SETTINGS = DQN(
    hidden=(16,), learning_rate=1e-2, batch_size=8, learning_starts=8, gamma=0.9, target_period=10, max_grad_norm=None
)
VARIANTS = {
    "plain": {},
    "simple": {"double": False},
    "squared": {"loss": "squared"},
    "dueling": {"dueling": True},
    "deep dueling": {"dueling": True, "hidden": (20, 12, 7)},
    "deep": {"hidden": (33, 5, 64)},
    "linear": {"hidden": ()},
    "clipped gradient": {"max_grad_norm": 0.05},
    "loose bound": {"max_grad_norm": 1e3},
    "clipped target": {"target_range": (-0.5, 0.75)},
    "polyak": {"tau": 0.1, "target_period": 1},
    "polyak now and then": {"tau": 0.3, "target_period": 3},
}


def agents(seeds, space=BOX, actions=ACTIONS, **changes):
    return replace(SETTINGS, **changes).agents(space, actions, seeds)


def apart(agents):
    """Move the target networks away from the online ones, so that a mix-up shows."""
    agents.core.target[:] = 0.5 * agents.core.online + 0.01
    return agents


def blocks_of(core, flat):
    """Weights and biases, layer by layer, of one replica's parameters (P,)."""
    blocks = []
    for begin, outputs, inputs in core.layers:
        end = begin + outputs * inputs
        blocks += [flat[begin:end].reshape(outputs, inputs), flat[end : end + outputs]]
    return blocks


def q_of(blocks, obs):
    w1, b1, w2, b2 = blocks
    hidden = np.maximum(obs @ w1.T + b1, 0)
    return hidden @ w2.T + b2, hidden


def by_hand(learner, online, target, batch):
    """One replica's TD errors, loss and gradients, from the textbook, in float64."""
    rows = np.arange(batch.action.shape[1])
    action = batch.action[0]
    q_next = q_of(target, batch.next_obs[0])[0]
    chooser = q_of(online, batch.next_obs[0])[0] if learner.double else q_next
    y = batch.reward[0] + learner.gamma * ~batch.terminated[0] * q_next[rows, chooser.argmax(1)]
    q, hidden = q_of(online, batch.obs[0])
    delta = y - q[rows, action]
    huber = np.where(np.abs(delta) <= 1, delta**2 / 2, np.abs(delta) - 0.5)
    values = huber if learner.loss == "huber" else delta**2 / 2
    slope = np.clip(delta, -1, 1) if learner.loss == "huber" else delta
    grad_q = np.zeros_like(q)
    grad_q[rows, action] = -batch.weight[0] * slope / len(rows)
    grad_hidden = grad_q @ online[2] * (hidden > 0)
    gradients = [grad_hidden.T @ batch.obs[0], grad_hidden.sum(0), grad_q.T @ hidden, grad_q.sum(0)]
    return delta, (batch.weight[0] * values).mean(), gradients, q[rows, action]


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_one_by_hand(double, loss, kernels):
    several = apart(agents([1, 2], double=double, loss=loss))
    core, batch = several.core, batch_of(2)
    before = [blocks_of(core, flat) for flat in core.online.astype(np.float64)]
    targets = [blocks_of(core, flat) for flat in core.target.astype(np.float64)]
    update = several.update(batch)
    for r in range(2):
        learner = replace(SETTINGS, double=double, loss=loss)
        delta, loss_value, gradients, q = by_hand(learner, before[r], targets[r], part(batch, r))
        np.testing.assert_allclose(update.td_error[r], delta, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(update.loss[r], loss_value, rtol=1e-5)
        np.testing.assert_allclose(update.q[r], q, rtol=1e-4, atol=1e-6)
        after = blocks_of(core, core.online[r])
        for old, new, actual, gradient in zip(
            before[r], after, blocks_of(core, core.gradients[r]), gradients, strict=True
        ):
            np.testing.assert_allclose(actual, gradient, rtol=1e-4, atol=1e-6)
            # Adam's first step is −λ·g / (|g| + ε)
            step = -learner.learning_rate * gradient / (np.abs(gradient) + 1e-8)
            clear = np.abs(gradient) > 1e-5
            np.testing.assert_allclose((new - old)[clear], step[clear], rtol=1e-2)
            assert not (new - old)[gradient == 0].any()


@cache
def autograds(variant, rows):
    """PyTorch's part, the same beside every kernel."""
    learner, batches = replace(SLOW, **VARIANTS[variant]), [batch_of(2, rows, seed=update) for update in range(4)]
    return learner, BOX, ACTIONS, batches, pytorchs_updates(learner, BOX, ACTIONS, batches)


SLOW = replace(SETTINGS, learning_rate=1e-6)
"""Small steps keep the two together: Adam's first ones have this size even where a gradient is only rounding."""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [1, 19, 64])
def test_gradients_equal_autograds(variant, rows, kernels):
    """The core's hand-written backward pass beside PyTorch's, started from the same weights."""
    assert_sees_the_same(*autograds(variant, rows))


OPTIMIZERS = {
    "adam": Adam(),
    "other adam": Adam(beta1=0.5, beta2=0.99, epsilon=1e-3),
    "long adam": Adam(beta2=0.99999999),
    "rmsprop": RMSprop(),
    "plain rmsprop": RMSprop(decay=0.99, epsilon=1e-3, centered=False),
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
}


def optimized(optimizer, make, updates=200):
    """Return agents of a linear network after updates by an optimizer.

    With a squared loss it gets any gradient one likes, however small or large.
    """
    rate = 1e-4 if isinstance(optimizer, SGD) else 1e-2
    learner = replace(SETTINGS, hidden=(), loss="squared", learning_rate=rate, optimizer=optimizer)
    agents = make(learner, BOX, ACTIONS, [0])
    scales = np.float32([1e-4, 1e-2, 1.0, 1e1 if isinstance(optimizer, SGD) else 1e2])
    for update in range(updates):
        batch = batch_of(1, 8, seed=update, terminated=np.ones((1, 8), bool))
        batch.obs[:] *= scales
        agents.update(batch)
    return agents


@cache
def pytorchs(optimizer):
    """PyTorch's weights after it, the same beside every kernel."""
    (only,) = optimized(optimizer, on_device).learners
    return torch.cat([p.detach().flatten() for p in only.online.parameters()]).numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_optimizers_equal_pytorchs(optimizer, kernels):
    by_core, start = optimized(optimizer, DQN.agents), optimized(optimizer, DQN.agents, updates=0).core.online
    np.testing.assert_allclose(by_core.core.online[0], pytorchs(optimizer), rtol=1e-4, atol=1e-5)
    assert np.abs(by_core.core.online - start).max() > 1e-3


def test_a_gradient_without_variance_divides_by_epsilon():
    """Centred squares are the rounding of a difference then, which may lie below 0, where a root would be no number."""
    learner = replace(SETTINGS, hidden=(), loss="squared", learning_rate=1e-9, optimizer=RMSprop())
    population = learner.agents(BOX, ACTIONS, [0])
    for _ in range(400):
        population.update(batch_of(1, 8, terminated=np.ones((1, 8), bool)))
    assert (population.core.square - population.core.mean**2 < 0).any()
    assert np.isfinite(population.core.online).all()


@pytest.mark.parametrize("make", [DQN.agents, on_device], ids=["core", "PyTorch"])
def test_learning_rates_follow_the_progress_of_each_replica(make):
    """SGD's steps are the rate times the gradient, so halving the rate halves them; at 0 nothing moves."""
    learner = replace(SETTINGS, optimizer=SGD(), learning_rate=Linear(1e-2, 0.0))
    several = make(learner, BOX, ACTIONS, [3, 3, 3])
    several.set_progress(np.array([0.0, 0.5, 1.0]))
    batch = batch_of(1, 8)
    same = Batch({name: np.repeat(values, 3, 0) for name, values in batch.items()})
    probes = batch_of(1, 32, seed=9).obs
    probes = np.repeat(probes, 3, 0)
    before = several.q_values(probes)
    several.update(same)
    moved = several.q_values(probes) - before
    assert not moved[2].any()
    np.testing.assert_allclose(moved[0], 2 * moved[1], rtol=0.05, atol=1e-4)
    assert np.abs(moved[0]).max() > 1e-3
    several.set_progress(0.5)
    if make is on_device:
        assert [learner_of_seed.optimizer.param_groups[0]["lr"] for learner_of_seed in several.learners] == [5e-3] * 3
    else:
        np.testing.assert_array_equal(several.core.learning_rates, np.float32([5e-3] * 3))


def test_initial_weights_are_uniform_and_differ_by_seed():
    core = agents([3, 1], hidden=(64, 32)).core
    for r in range(2):
        for (_, _, inputs), weight in zip(core.layers, blocks_of(core, core.online[r])[::2], strict=True):
            assert 0.8 * inputs**-0.5 < np.abs(weight).max() <= np.float32(inputs**-0.5)
    assert not np.array_equal(core.online[0], core.online[1])
    np.testing.assert_array_equal(core.online, core.target)


def test_termination_stops_the_bootstrap_and_truncation_does_not():
    def errors(**columns):
        return apart(agents([1])).update(batch_of(1, **columns)).td_error

    yes, no = np.ones((1, 8), bool), np.zeros((1, 8), bool)
    going_on = errors(terminated=no, truncated=no)
    np.testing.assert_array_equal(errors(terminated=no, truncated=yes), going_on)
    np.testing.assert_array_equal(errors(terminated=yes, truncated=no), errors(terminated=yes, truncated=yes))
    assert not np.allclose(errors(terminated=yes, truncated=no), going_on)
    elsewhere = batch_of(1, seed=9).next_obs
    np.testing.assert_array_equal(errors(terminated=yes, next_obs=elsewhere), errors(terminated=yes))


def test_an_n_step_batch_brings_its_own_discount():
    single = apart(agents([1]))
    state, batch = single.state(), batch_of(1, terminated=np.zeros((1, 8), bool))
    usual = single.update(batch).td_error
    single.restore(state)
    np.testing.assert_array_equal(single.update(batch_of(1, discount=np.full((1, 8), 0.9, np.float32))).td_error, usual)
    single.restore(state)
    q = single.q_values(batch.obs)[0, np.arange(8), batch.action[0]]
    none = single.update(batch_of(1, discount=np.zeros((1, 8), np.float32))).td_error
    np.testing.assert_allclose(none[0], batch.reward[0] - q, rtol=1e-5, atol=1e-6)


def test_a_row_of_weight_zero_teaches_nothing():
    def after(**columns):
        single = agents([1])
        single.update(batch_of(1, **columns))
        return single.core.online.copy()

    weight = np.ones((1, 8), np.float32)
    weight[0, 3] = 0.0
    high, low = batch_of(1).reward.copy(), batch_of(1).reward.copy()
    high[0, 3], low[0, 3] = 100.0, -100.0
    np.testing.assert_array_equal(after(weight=weight, reward=low), after(weight=weight, reward=high))
    assert not np.array_equal(after(reward=low), after(reward=high))


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_moves_every_period_of_updates(tau):
    pair = agents([0, 1], target_period=3, tau=tau)
    expected = pair.core.target.copy()
    for update in range(1, 10):
        pair.update(batch_of(2, seed=update))
        if update % 3 == 0:
            expected = expected + np.float32(tau) * (pair.core.online - expected)
        np.testing.assert_allclose(pair.core.target, expected, rtol=1e-6, atol=1e-7)
        assert tau < 1.0 or np.array_equal(pair.core.target, pair.core.online) == (update % 3 == 0)
    assert pair.updates == 9


def test_a_bound_on_the_gradient_holds_for_each_replica():
    free, bound = (agents([1, 2], max_grad_norm=m, loss="squared") for m in (None, 1e-3))
    batch = batch_of(2)
    batch.reward[1] *= 50
    for each in (free, bound):
        each.update(batch)
    norms = np.linalg.norm(free.core.gradients, axis=1)
    assert norms[1] > 10 * norms[0] > 0.1
    np.testing.assert_allclose(np.linalg.norm(bound.core.gradients, axis=1), 1e-3, rtol=1e-2)


def test_targets_stay_in_their_range():
    single = agents([1], target_range=(-0.5, 0.25))
    seen = single.update(batch_of(1))
    y = seen.td_error + seen.q
    assert y.min() == pytest.approx(-0.5)
    assert y.max() == pytest.approx(0.25)


def test_many_rows_are_valued_as_one_by_one():
    pair = agents([0, 1], dueling=True)
    obs = np.random.default_rng(0).normal(size=(2, 300, 4)).astype(np.float32)
    singly = np.concatenate([pair.q_values(obs[:, i : i + 1]) for i in range(300)], axis=1)
    np.testing.assert_allclose(pair.q_values(obs), singly, rtol=1e-5, atol=1e-6)


def test_action_values_take_any_box():
    pair = agents([0, 1], spaces.Box(0, 255, (3, 4), np.uint8))
    obs = np.arange(2 * 5 * 12, dtype=np.uint8).reshape(2, 5, 3, 4)
    assert pair.q_values(obs).shape == (2, 5, 3)
    np.testing.assert_array_equal(pair.q_values(obs), pair.q_values(obs.astype(np.float64)))


def test_an_invalid_action_raises_before_anything_changes():
    single = agents([1])
    state = single.state()
    for wrong in (3, -1):
        message = f"an action must be from 0 to 2, but the batch holds {wrong}"
        with pytest.raises(ConfigError, match=re.escape(message)):
            single.update(batch_of(1, action=np.full((1, 8), wrong)))
    for name, array in single.state().items():
        np.testing.assert_array_equal(array, state[name])


def test_columns_that_do_not_fit_are_reported():
    with pytest.raises(ShapeError, match="axis 1 of `reward` must be 8, but is 7"):
        agents([1]).update(batch_of(1, reward=np.zeros((1, 7), np.float32)))
    with pytest.raises(ShapeError, match="axis 0 of `obs` must be 2, but is 1"):
        agents([1, 2]).q_values(np.zeros((1, 5, 4), np.float32))


def test_threads_do_not_meet_in_one_learner():
    """Action values asked for by two threads at once, of different sizes, beside updates that change nothing."""
    learners = _core.QLearners(
        shape=[4, 1, 1], convolutions=[], hidden=[32, 32], actions=3, replicas=2, dueling=True, is_double=True,
        huber=True, max_grad_norm=10.0, least=-1e30, most=1e30,
        optimizer=Adam().in_core(), tau=1.0, target_period=1000,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    learners.online[...] = rng.normal(size=learners.online.shape)
    inputs = [rng.normal(size=(2, rows, 4)).astype(np.float32) for rows in (1, 40, 300)]
    expected = [learners.q_values(obs) for obs in inputs]
    real = np.ones((2, 40), np.float32)
    wrong, end = [], time.monotonic() + 0.3

    def ask(obs, q):
        while time.monotonic() < end:
            wrong.extend([1] * (not np.array_equal(learners.q_values(obs), q)))

    def learn():
        while time.monotonic() < end:
            learners.update(inputs[1], np.zeros((2, 40), np.int64), real, inputs[1], real, real)

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(inputs, expected, strict=True)]
    threads.append(threading.Thread(target=learn))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
