import copy
import re

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.dqn.modules import ModuleAgents, module_agents
from replaylab.learners.dqn.networks import PIXEL_LAYERS, Perceptron, PixelNetwork
from replaylab.replay import Prioritized
from tests.learners.calls import train
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of, part

PIXELS = spaces.Box(0, 255, (4, 40, 36), np.uint8)


def mine(space, num_actions):
    """A user's own network, with normalisation whose statistics are buffers."""
    return nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, num_actions))


def settings(**changes):
    return DQN(**({"hidden": (16,), "batch_size": 8, "learning_starts": 8, "target_period": 4} | changes))


VARIANTS = {
    "mine": {"module": mine},
    "polyak": {"module": mine, "tau": 0.2, "target_period": 1, "double": False},
    "squared": {"module": mine, "loss": "squared", "max_grad_norm": None, "target_range": (-1.0, 1.0)},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_replicas_learn_as_if_alone(changes):
    learner, seeds = settings(**changes), [5, 0]
    together, alone = learner.agents(BOX, ACTIONS, seeds), [learner.agents(BOX, ACTIONS, [s]) for s in seeds]
    assert isinstance(together, ModuleAgents)
    for update in range(100):
        batch = batch_of(2, seed=update)
        seen = together.update(batch)
        for r, one in enumerate(alone):
            np.testing.assert_array_equal(seen.td_error[r], one.update(part(batch, r)).td_error[0])


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("before", [0, 6])
def test_a_restored_population_goes_on_bit_for_bit(tmp_path, changes, before):
    straight, again = (settings(**changes).agents(BOX, ACTIONS, seeds) for seeds in ([1, 2], [8, 9]))
    for update in range(before):
        straight.update(batch_of(2, seed=update))
    np.savez(tmp_path / "state.npz", **straight.state())
    again.restore(dict(np.load(tmp_path / "state.npz")))
    for update in range(before, before + 10):
        batch = batch_of(2, seed=update)
        np.testing.assert_array_equal(again.update(batch).td_error, straight.update(batch).td_error)
    for name, array in straight.state().items():
        np.testing.assert_array_equal(again.state()[name], array)
        assert array.ndim == 0 or array.shape[0] == 2
    assert again.updates == before + 10


def test_restored_convolutions_go_on_bit_for_bit(tmp_path):
    """Weights, averages and gradients lie in memory as before; otherwise Adam would mix them up."""
    straight, again = (settings().agents(PIXELS, ACTIONS, [seed]) for seed in (1, 8))
    for update in range(3):
        straight.update(pixel_batch(1, seed=update))
    np.savez(tmp_path / "state.npz", **straight.state())
    again.restore(dict(np.load(tmp_path / "state.npz")))
    for update in range(3, 8):
        batch = pixel_batch(1, seed=update)
        np.testing.assert_array_equal(again.update(batch).td_error, straight.update(batch).td_error)


def test_adam_moves_convolutions_as_pytorchs_plain_one_does():
    agents = settings(max_grad_norm=None).agents(PIXELS, ACTIONS, [1])
    one = agents.learners[0]
    plain = copy.deepcopy(one.online)
    reference = torch.optim.Adam(plain.parameters(), one.settings.learning_rate, fused=False, foreach=False)
    for update in range(4):
        agents.update(pixel_batch(1, seed=update))
        for mirror, parameter in zip(plain.parameters(), one.online.parameters(), strict=True):
            mirror.grad = parameter.grad.clone()
        reference.step()
    for mirror, parameter in zip(plain.parameters(), one.online.parameters(), strict=True):
        torch.testing.assert_close(mirror, parameter, rtol=0, atol=1e-6)


def test_a_state_is_a_copy():
    agents = settings(module=mine).agents(BOX, ACTIONS, [1])
    state = agents.state()
    kept = {name: array.copy() for name, array in state.items()}
    agents.update(batch_of(1))
    for name, array in state.items():
        np.testing.assert_array_equal(array, kept[name])
    assert any(not np.array_equal(agents.state()[name], array) for name, array in kept.items())


def test_initial_weights_come_from_the_seed_alone_and_pytorchs_generator_stays():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = settings(module=mine).agents(BOX, ACTIONS, [3, 4]).state()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(1)
    second = settings(module=mine).agents(BOX, ACTIONS, [4]).state()
    np.testing.assert_array_equal(first["online.0.weight"][1], second["online.0.weight"][0])
    assert not np.array_equal(first["online.0.weight"][0], first["online.0.weight"][1])


def test_a_module_sees_a_box_in_its_shape_and_dtype():
    seen = []

    class Spy(nn.Module):
        def __init__(self, num_actions):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(num_actions))

        def forward(self, x):
            seen.append((tuple(x.shape), x.dtype))
            return self.bias.expand(len(x), -1)

    learner = settings(module=lambda space, num_actions: Spy(num_actions))
    for space in (PIXELS, spaces.Box(-1, 1, (2, 3), np.float64), spaces.Discrete(7)):
        obs = np.zeros((1, 5, *space.shape), space.dtype)
        assert learner.agents(space, ACTIONS, [0]).q_values(obs).shape == (1, 5, 3)
    assert seen == [((5, 4, 40, 36), torch.uint8), ((5, 2, 3), torch.float32), ((5, 7), torch.float32)]


def test_dueling_values_are_the_states_value_plus_centred_advantages():
    network = Perceptron(4, (6, 5), 3, dueling=True)
    x = torch.randn(10, 4)
    hidden = torch.relu(network.hidden[1](torch.relu(network.hidden[0](x))))
    value, advantage = network.heads[0](hidden[:, :5]), network.heads[1](hidden[:, 5:])
    torch.testing.assert_close(network(x).mean(1, keepdim=True), value)
    torch.testing.assert_close(network(x) - value, advantage - advantage.mean(1, keepdim=True))


def pixel_batch(replicas, rows=8, seed=0):
    rng = np.random.default_rng(seed)
    frames = {name: rng.integers(256, size=(replicas, rows, 4, 40, 36), dtype=np.uint8) for name in ("obs", "next_obs")}
    return batch_of(replicas, rows, seed, **frames)


@pytest.mark.parametrize("dueling", [False, True])
def test_pixels_go_through_the_network_of_2015(dueling):
    learner = settings(dueling=dueling)
    together, alone = learner.agents(PIXELS, ACTIONS, [2, 6]), learner.agents(PIXELS, ACTIONS, [6])
    network = alone.learners[0].online
    assert isinstance(network, PixelNetwork)
    batch = pixel_batch(2)
    black, white = (np.full((1, 1, 4, 40, 36), value, np.uint8) for value in (0, 255))
    with torch.no_grad():
        ones = network.top(network.convolutions(torch.ones(1, 4, 40, 36)))
    torch.testing.assert_close(torch.from_numpy(alone.q_values(white)[0]), ones)
    assert not np.allclose(alone.q_values(black), alone.q_values(white))
    for _ in range(5):
        seen = together.update(batch)
        np.testing.assert_array_equal(seen.td_error[1], alone.update(part(batch, 1)).td_error[0])


@pytest.mark.parametrize(("name", "size"), [("nature", 1_693_362), ("data_efficient", 206_834)])
def test_networks_for_pixels_have_their_papers_sizes(name, size):
    """With 18 actions: Mnih et al. 2015; van Hasselt et al. 2019, 3,232 + 51,264 + 147,712 + 18 · 257."""
    network = PixelNetwork((4, 84, 84), 18, PIXEL_LAYERS[name])
    assert sum(p.numel() for p in network.parameters()) == size


def test_the_data_efficient_network_is_two_layers_of_patches():
    """Stride = side: each convolution is a dense layer on patches that do not overlap."""
    space = spaces.Box(0, 255, (4, 50, 25), np.uint8)
    agents = settings(pixel_network="data_efficient").agents(space, ACTIONS, [3])
    network = agents.learners[0].online
    obs = np.random.default_rng(0).integers(256, size=(1, 3, 4, 50, 25), dtype=np.uint8)
    x = obs[0] / 255.0
    for layer in (network.convolutions[0], network.convolutions[2]):
        weight, bias = (p.detach().numpy().astype(float) for p in (layer.weight, layer.bias))
        rows, channels, height, width = x.shape
        patches = x.reshape(rows, channels, height // 5, 5, width // 5, 5)
        x = np.maximum(np.einsum("bcyixj,fcij->bfyx", patches, weight) + bias[:, None, None], 0.0)
    assert x.shape == (3, 64, 2, 1)
    with torch.no_grad():
        q = network.top(torch.from_numpy(x.reshape(3, -1)).float())
    np.testing.assert_allclose(agents.q_values(obs)[0], q, rtol=1e-4, atol=1e-5)


def test_an_image_too_small_for_a_network_is_told_with_the_least_side():
    for name, least in (("nature", 36), ("data_efficient", 25)):
        PixelNetwork((4, least, least), 2, PIXEL_LAYERS[name])
        with pytest.raises(ConfigError, match=f"at least {least} × {least}"):
            PixelNetwork((4, least, least - 1), 2, PIXEL_LAYERS[name])


@pytest.mark.parametrize("shape", [(84, 84, 3), (4, 20, 84)])
def test_images_the_network_cannot_see_are_told(shape):
    with pytest.raises(ConfigError, match=re.escape(f"but they have the shape {shape}")):
        settings().agents(spaces.Box(0, 255, shape, np.uint8), ACTIONS, [0])


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_told(device):
    with pytest.raises(ConfigError, match=re.escape(f"but got '{device}'")):
        settings(device=device).agents(BOX, ACTIONS, [0])


def test_a_perceptron_on_another_device_starts_as_the_cores():
    learner = settings(dueling=True, hidden=(9, 5))
    ours, theirs = learner.agents(BOX, ACTIONS, [3]), module_agents(learner, BOX, ACTIONS, [3])
    obs = batch_of(1).obs
    np.testing.assert_allclose(theirs.q_values(obs), ours.q_values(obs), rtol=1e-5, atol=1e-6)


def test_the_training_loop_takes_a_module():
    learner = settings(module=lambda space, n: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, n)))
    metrics = train("CartPole-v1", learner, Prioritized(), [0, 1], 60, eval_every=None, log_every=20)
    assert np.isfinite(metrics.of("train/loss")[1]).all()
