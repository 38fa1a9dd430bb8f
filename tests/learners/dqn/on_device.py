"""The agents that another device would have, here on the CPU: the core's networks in PyTorch."""

import torch

from replaylab.learners.api.observations import are_pixels
from replaylab.learners.dqn.layers import board_layers, pixel_layers
from replaylab.learners.dqn.modules import module_agents


def on_device(learner, space, actions, seeds):
    """Return the agents of PyTorch that the settings ask for."""
    layers = None
    if learner.filters:
        layers = board_layers(learner.filters, learner.hidden, space)
    elif are_pixels(space):
        layers = pixel_layers(learner.pixel_network, space)
    return module_agents(learner, space, layers, actions, seeds)


def gradients(one):
    """Return the gradient of a replica in PyTorch in the order of the core (P,)."""
    return torch.cat([in_cores_order(p.grad) for p in one.online.parameters()])


def in_cores_order(p):
    """Return a parameter's numbers, of filters with the channels last."""
    return (p.permute(0, 2, 3, 1) if p.ndim == 4 else p).flatten()
