"""Networks learn the same wherever they are computed, up to the rounding of sums."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from replaylab.learners import DQN
from replaylab.learners.dqn.modules import ModuleAgents
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of

PIXELS = spaces.Box(0, 255, (4, 40, 36), np.uint8)
BOARD = spaces.Box(0, 1, (4, 10, 10), np.bool_)
SEEDS = [1, 2]
UPDATES = 5


def mine(space, num_actions):
    """A network with statistics, which are no parameters."""
    return nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, num_actions))


NETWORKS = {
    "nature": (PIXELS, {"pixel_network": "nature"}),
    "nature, dueling": (PIXELS, {"pixel_network": "nature", "dueling": True, "max_grad_norm": 10.0}),
    "data-efficient": (PIXELS, {"pixel_network": "data_efficient", "double": False, "loss": "squared"}),
    "filters": (BOARD, {"filters": 4, "hidden": (16,)}),
    "perceptron": (BOX, {"hidden": (16, 8), "dueling": True}),
    "module": (BOX, {"module": mine, "tau": 0.5, "target_period": 1}),
}
pytestmark = pytest.mark.usefixtures("full_precision")
DEVICES = ["cpu:0", pytest.param("cuda", marks=pytest.mark.cuda)]
"""PyTorch on the processor, and the GPU; with the device "cpu" the compiled core computes most of them."""


def agents_of(name, device, seeds=SEEDS):
    space, changes = NETWORKS[name]
    changes = {"batch_size": 8, "learning_starts": 8, "target_period": 4, "learning_rate": 1e-4} | changes
    return DQN(device=device, **changes).agents(space, ACTIONS, seeds)


def batches(name, count=UPDATES):
    space = NETWORKS[name][0]
    rng = np.random.default_rng(7)
    for turn in range(count):
        shape = (len(SEEDS), 8, *space.shape)
        if space is BOX:
            seen = {}
        else:
            high = 256 if space is PIXELS else 2
            seen = {key: rng.integers(high, size=shape).astype(space.dtype) for key in ("obs", "next_obs")}
        yield batch_of(len(SEEDS), seed=turn, **seen)


def close(left, right):
    np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", *DEVICES[1:]])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_learns_the_same_on_a_device(name, device):
    reference, on_device = agents_of(name, "cpu:0"), agents_of(name, device)
    for batch in batches(name):
        close(on_device.q_values(batch.obs), reference.q_values(batch.obs))
        mine, expected = on_device.update(batch), reference.update(batch)
        close(mine.td_error, expected.td_error)
        close(mine.q, expected.q)
        close(on_device.target_q_values(batch.obs), reference.target_q_values(batch.obs))
    assert not np.allclose(on_device.q_values(batch.obs), agents_of(name, device).q_values(batch.obs), atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_state_moves_between_devices_and_training_goes_on(name, device, tmp_path):
    """A run trained on a GPU can be watched and continued on the processor, and the other way round."""
    *before, last = batches(name)
    trained = {"there": agents_of(name, device), "here": agents_of(name, "cpu:0")}
    for agents in trained.values():
        for batch in before:
            agents.update(batch)
    for origin, other in (("there", "cpu:0"), ("here", device)):
        file = tmp_path / f"{origin}.npz"
        np.savez(file, **trained[origin].state())
        again = agents_of(name, other, seeds=[8, 9])
        again.restore(dict(np.load(file)))
        close(again.q_values(last.obs), trained[origin].q_values(last.obs))
        close(again.update(last).td_error, trained[origin].update(last).td_error)
        close(again.q_values(last.obs), trained[origin].q_values(last.obs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETWORKS)
def test_looking_at_a_batch_on_a_device_changes_nothing(name, device):
    reference, on_device = agents_of(name, "cpu:0"), agents_of(name, device)
    (batch,) = batches(name, 1)
    before = on_device.state()
    probe, wanted = on_device.probe(batch), reference.probe(batch)
    close(probe.td_error, wanted.td_error)
    close(probe.gradient, wanted.gradient)
    for key, array in on_device.state().items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_targets_and_averages_live_on_the_device(name, device):
    agents = agents_of(name, device)
    assert isinstance(agents, ModuleAgents)
    (batch,) = batches(name, 1)
    agents.update(batch)
    agents.restore(agents.state())
    agents.update(batch)
    for learner in agents.learners:
        averages = [part for state in learner.optimizer.state.values() for part in state.values()]
        assert averages
        for tensor in (*learner.online.state_dict().values(), *learner.target.state_dict().values(), *averages):
            assert tensor.device.type == torch.device(device).type
