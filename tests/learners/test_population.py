from dataclasses import replace

import numpy as np
import pytest
import torch

from replaylab.learners import DQN, Population
from replaylab.replay import Batch

SETTINGS = DQN(
    hidden=(16,),
    learning_rate=1e-2,
    batch_size=8,
    learning_starts=8,
    gamma=0.9,
    target_period=10,
    max_grad_norm=None,
)


def batch_of(replicas, rows=8, seed=0, **given):
    rng = np.random.default_rng(seed)
    columns = {
        "obs": rng.normal(size=(replicas, rows, 4)).astype(np.float32),
        "action": rng.integers(3, size=(replicas, rows)),
        "reward": 2 * rng.normal(size=(replicas, rows)).astype(np.float32),
        "next_obs": rng.normal(size=(replicas, rows, 4)).astype(np.float32),
        "terminated": rng.random((replicas, rows)) < 0.3,
        "truncated": rng.random((replicas, rows)) < 0.3,
        "weight": rng.random((replicas, rows)).astype(np.float32),
        "id": np.arange(replicas * rows).reshape(replicas, rows),
    }
    return Batch(columns | given)


def part(batch, r):
    return Batch({name: column[r : r + 1].copy() for name, column in batch.items()})


def parameters(population, r):
    layers = population.online.layers
    return [block[r].numpy().astype(np.float64) for layer in layers for block in (layer.weight, layer.bias)]


def apart(population):
    """Move the target network away from the online one, so that a mix-up shows."""
    population.target.parameters.mul_(0.5).add_(0.01)
    return population


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
    return delta, (batch.weight[0] * values).mean(), gradients, q[rows, action].mean()


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_one_by_hand(double, loss):
    learner = replace(SETTINGS, double=double, loss=loss)
    population = apart(Population(learner, 4, 3, [1, 2]))
    batch = batch_of(2)
    expected = []
    for r in range(2):
        online = parameters(population, r)
        target = [0.5 * block + 0.01 for block in online]
        expected.append((online, *by_hand(learner, online, target, part(batch, r))))
    update = population.update(batch)
    for r, (before, delta, value, gradients, q_mean) in enumerate(expected):
        np.testing.assert_allclose(update.td_error[r], delta, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(update.loss[r], value, rtol=1e-5)
        np.testing.assert_allclose(update.q[r].mean(), q_mean, rtol=1e-4, atol=1e-6)
        for old, new, gradient in zip(before, parameters(population, r), gradients, strict=True):
            # Adam's first step is −λ·g / (|g| + ε)
            step = -learner.learning_rate * gradient / (np.abs(gradient) + 1e-8)
            clear = np.abs(gradient) > 1e-5
            np.testing.assert_allclose((new - old)[clear], step[clear], rtol=1e-2)
            assert not (new - old)[gradient == 0].any()


def test_the_gradient_is_that_of_the_weighted_loss():
    population = apart(Population(SETTINGS, 4, 3, [1, 2]))
    batch = batch_of(2)
    expected = []
    for r in range(2):
        online = parameters(population, r)
        target = [0.5 * block + 0.01 for block in online]
        expected.append(by_hand(SETTINGS, online, target, part(batch, r))[2])
    population.update(batch)
    for r, gradients in enumerate(expected):
        layers = population.online.layers
        blocks = [block[r] for layer in layers for block in (layer.grad_weight, layer.grad_bias)]
        for block, gradient in zip(blocks, gradients, strict=True):
            np.testing.assert_allclose(block, gradient, rtol=1e-4, atol=1e-6)


def test_termination_stops_the_bootstrap_and_truncation_does_not():
    def errors(**given):
        return apart(Population(SETTINGS, 4, 3, [1])).update(batch_of(1, **given)).td_error

    yes, no = np.ones((1, 8), bool), np.zeros((1, 8), bool)
    going_on = errors(terminated=no, truncated=no)
    np.testing.assert_array_equal(errors(terminated=no, truncated=yes), going_on)
    np.testing.assert_array_equal(errors(terminated=yes, truncated=no), errors(terminated=yes, truncated=yes))
    assert not np.allclose(errors(terminated=yes, truncated=no), going_on)
    elsewhere = batch_of(1, seed=9).next_obs
    ended = errors(terminated=yes)
    np.testing.assert_array_equal(errors(terminated=yes, next_obs=elsewhere), ended)


def test_a_row_of_weight_zero_teaches_nothing():
    def after(**given):
        population = Population(SETTINGS, 4, 3, [1])
        population.update(batch_of(1, **given))
        return population.online.parameters

    weight = np.ones((1, 8), np.float32)
    weight[0, 3] = 0.0
    high, low = batch_of(1).reward.copy(), batch_of(1).reward.copy()
    high[0, 3], low[0, 3] = 100.0, -100.0
    assert torch.equal(after(weight=weight, reward=low), after(weight=weight, reward=high))
    assert not torch.equal(after(reward=low), after(reward=high))


def test_the_target_network_is_copied_every_period_of_updates():
    population = Population(replace(SETTINGS, target_period=3), 4, 3, [0, 1])
    kept = population.target.parameters.clone()
    for update in range(1, 10):
        population.update(batch_of(2, seed=update))
        if update % 3 == 0:
            kept = population.online.parameters.clone()
        assert torch.equal(population.target.parameters, kept)
        assert update % 3 == 0 or not torch.equal(population.online.parameters, kept)
    assert population.updates == 9


@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_replicas_learn_as_if_alone(max_grad_norm):
    """100 updates of a population equal those of single runs, to 1e-5 of the parameters' scale."""
    learner = replace(SETTINGS, learning_rate=1e-3, max_grad_norm=max_grad_norm, hidden=(32, 32))
    seeds = [5, 0, 7, 3]
    population = Population(learner, 4, 3, seeds)
    singles = [Population(learner, 4, 3, [seed]) for seed in seeds]
    for update in range(100):
        batch = batch_of(4, seed=update)
        together = population.update(batch)
        for r, single in enumerate(singles):
            alone = single.update(part(batch, r))
            np.testing.assert_allclose(together.td_error[r], alone.td_error[0], rtol=1e-4, atol=1e-4)
    for r, single in enumerate(singles):
        for several, one in zip(parameters(population, r), parameters(single, 0), strict=True):
            np.testing.assert_allclose(several, one, rtol=1e-5, atol=1e-5 * np.abs(one).max())


def test_a_bound_on_the_gradient_bounds_the_step():
    free, bound = (Population(replace(SETTINGS, max_grad_norm=m), 4, 3, [1]) for m in (None, 1e-3))
    for population in (free, bound):
        population.update(batch_of(1))
    assert free.online.gradients.norm() > 0.1
    torch.testing.assert_close(bound.online.gradients.norm(), torch.tensor(1e-3), rtol=1e-2, atol=0)


def test_action_values_take_any_box():
    population = Population(SETTINGS, 12, 3, [0, 1])
    obs = np.arange(2 * 5 * 12, dtype=np.uint8).reshape(2, 5, 3, 4)
    q = population.q_values(obs)
    assert q.shape == (2, 5, 3)
    np.testing.assert_allclose(q, population.q_values(obs.reshape(2, 5, 12).astype(np.float64)), rtol=1e-6)


def test_a_restored_population_goes_on_bit_for_bit_and_so_do_some_of_its_replicas():
    learner = replace(SETTINGS, target_period=7)
    population = Population(learner, 4, 3, [5, 0, 7])
    for update in range(10):
        population.update(batch_of(3, seed=update))
    state = population.state()
    other, last = Population(learner, 4, 3, [1, 2, 3]), Population(learner, 4, 3, [7])
    other.restore(state)
    last.restore({name: array[2:] if array.ndim else array for name, array in state.items()})
    for update in range(10, 20):
        batch = batch_of(3, seed=update)
        expected = population.update(batch)
        np.testing.assert_array_equal(other.update(batch).td_error, expected.td_error)
        alone = last.update(part(batch, 2))
        np.testing.assert_allclose(alone.td_error, expected.td_error[2:], rtol=1e-5, atol=1e-5)
    for name, array in population.state().items():
        np.testing.assert_array_equal(other.state()[name], array)
    assert (other.updates, last.updates) == (20, 20)
