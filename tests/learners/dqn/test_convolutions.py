"""Networks for pixels, computed by the core, beside PyTorch's autograd."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from gymnasium import spaces

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.dqn.layers import PIXEL_LAYERS, Convolution, ImageLayers
from replaylab.replay import Batch
from tests.learners.dqn.batches import batch_of
from tests.learners.dqn.on_device import assert_sees_the_same, on_device, pytorchs_updates

CHOICES = spaces.Discrete(5)
SETTINGS = DQN(learning_rate=1e-7, batch_size=8, learning_starts=8, gamma=0.9, max_grad_norm=None)
OWN = {
    "overlapping": ((3, 3, 1), (4, 3, 2)),
    "side by side": ((5, 2, 2), (3, 4, 4)),
    "apart": ((5, 2, 3), (8, 1, 2), (2, 2, 1)),
    "many": ((17, 4, 3),),
}


def space_of(shape):
    return spaces.Box(0, 255, shape, np.uint8)


def agents(seeds, space, actions, **changes):
    return replace(SETTINGS, **changes).agents(space, actions, seeds)


@cache
def autograds(learner, layers, shape, rows):
    """PyTorch's part, the same beside every kernel; `layers` are those of the learner's network."""
    space = space_of(shape)
    batches = [batch_of(2, rows, update, space, 5) for update in range(2)]
    return learner, space, CHOICES, batches, pytorchs_updates(learner, space, CHOICES, batches)


def compare(learner, shape, rows):
    assert_sees_the_same(*autograds(learner, PIXEL_LAYERS[learner.pixel_network], shape, rows))


@pytest.mark.parametrize("convolutions", OWN.values(), ids=OWN.keys())
@pytest.mark.parametrize(("shape", "rows"), [((3, 17, 14), 1), ((4, 15, 16), 19), ((1, 19, 21), 32)])
def test_gradients_of_any_convolutions_equal_autograds(monkeypatch, convolutions, shape, rows, kernels):
    layers = ImageLayers(tuple(Convolution(*convolution) for convolution in convolutions), (6,))
    monkeypatch.setitem(PIXEL_LAYERS, "nature", layers)
    compare(SETTINGS, shape, rows)


@pytest.mark.parametrize("name", PIXEL_LAYERS)
@pytest.mark.parametrize("changes", [{"double": False, "loss": "squared"}, {"dueling": True, "max_grad_norm": 0.05}])
def test_gradients_of_the_published_networks_equal_autograds(name, changes, kernels):
    compare(replace(SETTINGS, pixel_network=name, **changes), (4, 44, 53), 9)


def test_values_do_not_depend_on_how_many_are_asked_for_at_once():
    space = space_of((4, 36, 36))
    agents = SETTINGS.agents(space, CHOICES, [1])
    obs = batch_of(1, 70, space=space).obs
    one_by_one = np.concatenate([agents.q_values(obs[:, i : i + 1]) for i in range(70)], 1)
    np.testing.assert_allclose(agents.q_values(obs), one_by_one, rtol=1e-5, atol=1e-6)


def test_black_and_white_are_0_and_1():
    """The network's input for a pixel is its share of 255."""
    space = space_of((1, 36, 36))
    agents = SETTINGS.agents(space, CHOICES, [1])
    network = on_device(SETTINGS, space, CHOICES, [1]).learners[0].online
    network.scale = 1.0
    for value, share in ((0, 0.0), (255, 1.0), (51, 0.2)):
        obs = np.full((1, 1, 1, 36, 36), value, np.uint8)
        with torch.no_grad():
            q = network(torch.full((1, 1, 36, 36), share))
        np.testing.assert_allclose(agents.q_values(obs)[0], q, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "size"), [("nature", 1_693_362), ("data_efficient", 206_834)])
def test_networks_for_pixels_have_their_papers_sizes(name, size):
    """With 18 actions: Mnih et al. 2015; van Hasselt et al. 2019, 3,232 + 51,264 + 147,712 + 18 · 257."""
    agents = replace(SETTINGS, pixel_network=name).agents(space_of((4, 84, 84)), spaces.Discrete(18), [0])
    assert agents.core.online.shape == (1, size)


def test_the_data_efficient_network_is_two_layers_of_patches():
    """Stride = side: each convolution is a dense layer on patches that do not overlap."""
    space, learner = space_of((4, 52, 29)), replace(SETTINGS, pixel_network="data_efficient")
    agents = learner.agents(space, CHOICES, [3])
    obs = batch_of(1, 3, space=space).obs
    x = obs[0].transpose(0, 2, 3, 1) / 255.0
    blocks = [
        (agents.core.online[0, begin:][: outputs * inputs].reshape(outputs, inputs), outputs * inputs + begin)
        for begin, outputs, inputs in agents.core.layers
    ]
    for weight, after in blocks[:2]:
        rows, height, width, channels = x.shape
        x = x[:, : height // 5 * 5, : width // 5 * 5].reshape(rows, height // 5, 5, width // 5, 5, channels)
        bias = agents.core.online[0, after : after + len(weight)]
        x = np.maximum(np.einsum("byixjc,fijc->byxf", x, weight.reshape(-1, 5, 5, channels)) + bias, 0.0)
    assert x.shape == (3, 2, 1, 64)
    for depth, (weight, after) in enumerate(blocks[2:]):
        x = x.reshape(3, -1) @ weight.T + agents.core.online[0, after : after + len(weight)]
        x = np.maximum(x, 0.0) if depth == 0 else x
    np.testing.assert_allclose(agents.q_values(obs)[0], x, rtol=1e-4, atol=1e-5)


def test_an_image_too_small_is_reported_with_the_least_side():
    for name, least in (("nature", 36), ("data_efficient", 25)):
        learner = replace(SETTINGS, pixel_network=name)
        learner.agents(space_of((4, least, least)), CHOICES, [0])
        with pytest.raises(ConfigError, match=f"at least {least} × {least}"):
            learner.agents(space_of((4, least, least - 1)), CHOICES, [0])


@pytest.mark.parametrize("shape", [(84, 84, 3), (4, 20, 84)])
def test_images_the_network_cannot_see_are_reported(shape):
    with pytest.raises(ConfigError, match=re.escape(f"but they have the shape {shape}")):
        SETTINGS.agents(space_of(shape), CHOICES, [0])


@pytest.mark.parametrize("column", ["reward", "weight", "discount"])
def test_pixels_are_scaled_whatever_the_other_columns_are(column):
    """The core has a form for pixels and one for other numbers, which would take pixels as they are."""
    space = space_of((4, 40, 36))
    agents = replace(SETTINGS, pixel_network="data_efficient").agents(space, CHOICES, [0])
    batch = batch_of(1, space=space, discount=np.full((1, 8), 0.9, np.float32))
    other = Batch({**batch, column: batch[column].astype(np.float64)})
    apart = Batch({**batch, column: np.repeat(batch[column], 2, axis=1)[:, ::2]})
    for equal in (other, apart):
        np.testing.assert_array_equal(agents.probe(equal).td_error, agents.probe(batch).td_error)
