"""The agents that another device would have, here on the CPU, and what they and the core's must have in common."""

from dataclasses import replace

import numpy as np
import torch


def on_device(learner, space, actions, seeds):
    """Return the agents of PyTorch that the settings ask for; the device "cpu" would give the core's."""
    return replace(learner, device="cpu:0").agents(space, actions, seeds)


def assert_learn_alike(ours, theirs, batch):
    """Update the core's agents and PyTorch's: they see the same values, TD errors and gradients."""
    np.testing.assert_allclose(ours.q_values(batch.obs), theirs.q_values(batch.obs), rtol=1e-4, atol=1e-5)
    mine, wanted = ours.update(batch), theirs.update(batch)
    np.testing.assert_allclose(mine.td_error, wanted.td_error, rtol=1e-4, atol=1e-5)
    for r, one in enumerate(theirs.learners):
        gradient = torch.cat([in_cores_order(p.grad) for p in one.online.parameters()])
        scale = gradient.abs().max().item()
        np.testing.assert_allclose(ours.core.gradients[r], gradient, rtol=1e-4, atol=1e-4 * scale)


def in_cores_order(p):
    """Return a parameter's numbers, of filters with the channels last."""
    return (p.permute(0, 2, 3, 1) if p.ndim == 4 else p).flatten()
