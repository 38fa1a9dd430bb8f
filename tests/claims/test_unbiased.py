"""Importance weights and LAP's loss in the expected gradient of a real network."""

import numpy as np
import pytest
import torch

from replaylab.claims import ReplicationOutcome
from replaylab.claims.unbiased import (
    SAMPLERS,
    Gradients,
    distribution_and_weights,
    drawn,
    error,
    huber,
    measure,
    pal,
    squared,
)
from replaylab.replay import LAP, Prioritized

N = 96


@pytest.fixture(scope="module")
def gradients():
    return Gradients.make(N, seed=1)


def test_gradient_is_that_of_finite_differences(gradients):
    weights = np.linspace(0.0, 1.0, N)
    found = gradients.of(huber, weights)
    last = list(gradients.online.parameters())[-1]  # the output biases, the last two numbers
    before = gradients.td_error.clone()
    for action, slope in enumerate(found[-2:]):
        losses = []
        for shift in (1e-6, -1e-6):
            with torch.no_grad():
                last[action] += shift
                q = gradients.online(torch.from_numpy(gradients.steps["obs"]))[:, action]
                last[action] -= shift
                base = gradients.online(torch.from_numpy(gradients.steps["obs"]))[:, action]
            taken = torch.from_numpy(gradients.steps["action"] == action)
            moved = before - torch.where(taken, q - base, 0.0)
            losses.append((torch.from_numpy(weights) * huber(moved)).sum().item())
        assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4)


def test_gradients_of_each_step_add_up(gradients):
    weights = np.random.default_rng(0).normal(size=N)
    np.testing.assert_allclose(weights @ gradients.of_each(squared), gradients.of(squared, weights), atol=1e-12)


def test_td_errors_lie_on_both_sides_of_one(gradients):
    size = gradients.td_error.abs()
    assert (size > 1.0).sum() >= N / 10
    assert (size < 1.0).sum() >= N / 10


@pytest.mark.parametrize("name", SAMPLERS)
def test_full_weights_undo_the_distribution_exactly(name, gradients):
    distribution, weights = distribution_and_weights(gradients, SAMPLERS[name], 0)
    assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(distribution * weights * N, 1.0, rtol=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_smaller_weights_do_not(beta, gradients):
    distribution, weights = distribution_and_weights(gradients, Prioritized(beta=beta, normalize="none"), 0)
    uniform = gradients.of(squared, np.full(N, 1.0 / N))
    assert error(gradients.of(squared, distribution * weights), uniform) > 1e-2


@pytest.mark.parametrize("alpha", [0.2, 0.4, 1.0])
def test_lap_with_huber_is_pal(alpha, gradients):
    distribution, weights = distribution_and_weights(gradients, LAP(alpha), 0)
    assert (weights == 1.0).all()
    even = np.full(N, 1.0 / N)
    lap = gradients.of(huber, distribution)
    assert error(lap, gradients.of(lambda d: pal(d, alpha), even)) < 1e-6
    assert error(lap, gradients.of(huber, even)) > 1e-2  # without PAL's loss they differ


def test_drawn_batches_without_weights_are_found_to_be_biased(gradients):
    """The interval of 4.9 standard errors excludes 1, so the check by draws can fail."""
    truth = gradients.of(squared, np.full(N, 1.0 / N))
    along = gradients.of_each(squared) @ truth / (truth @ truth)
    mean, deviation = drawn(gradients.buffer(Prioritized(beta=0.0), 0), along, 500)
    assert abs(mean - 1.0) > 4.9 * deviation


def test_claim_is_reproduced():
    findings = list(measure(steps=N, batches=500))
    assert [f.what for f in findings if f.verdict is not ReplicationOutcome.REPRODUCED] == []
