"""The agents that another device would have, here on the CPU, and what they and the core's must have in common."""

from dataclasses import replace

import numpy as np
import torch

from replaylab.learners.dqn.perceptrons import PerceptronAgents


def on_device(learner, space, actions, seeds):
    """Return the agents of PyTorch that the settings ask for; the device "cpu" would give the core's."""
    return replace(learner, device="cpu:0").agents(space, actions, seeds)


def pytorchs_updates(learner, space, actions, batches):
    """Return what PyTorch's agents of two seeds see in each update: action values, TD errors, gradients (R, P)."""
    agents, seen = on_device(learner, space, actions, [3, 4]), []
    for batch in batches:
        q, td_error = agents.q_values(batch.obs), agents.update(batch).td_error
        gradients = [
            torch.cat([in_cores_order(p.grad) for p in learner_of_seed.online.parameters()])
            for learner_of_seed in agents.learners
        ]
        seen.append((q, td_error, torch.stack(gradients).numpy()))
    return seen


def assert_sees_the_same(learner, space, actions, batches, seen):
    """Update the core's agents of these seeds, which see the same as PyTorch's did."""
    agents = learner.agents(space, actions, [3, 4])
    assert isinstance(agents, PerceptronAgents)
    for batch, (q, td_error, gradients) in zip(batches, seen, strict=True):
        np.testing.assert_allclose(agents.q_values(batch.obs), q, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(agents.update(batch).td_error, td_error, rtol=1e-4, atol=1e-5)
        for mine, gradient in zip(agents.core.gradients, gradients, strict=True):
            np.testing.assert_allclose(mine, gradient, rtol=1e-4, atol=1e-4 * np.abs(gradient).max())


def in_cores_order(p):
    """Return a parameter's numbers, of filters with the channels last."""
    return (p.permute(0, 2, 3, 1) if p.ndim == 4 else p).flatten()
