"""Replicas of every kind of network learn as if they were alone, and continue from a state bit for bit."""

import numpy as np
import pytest
from gymnasium import spaces

from replaylab.learners.api.protocols import pick
from tests.learners.dqn import test_convolutions, test_filters, test_modules, test_perceptrons
from tests.learners.dqn.batches import ACTIONS, BOX, batch_of, part

PIXELS = spaces.Box(0, 255, (2, 30, 26), np.uint8)
CONVOLUTIONS = {"pixel_network": "data_efficient", "learning_rate": 1e-3}
NETWORKS = {
    **{name: (BOX, 60, test_perceptrons.agents, changes) for name, changes in test_perceptrons.VARIANTS.items()},
    **{f"module, {name}": (BOX, 30, test_modules.agents, variant) for name, variant in test_modules.VARIANTS.items()},
    "filters": (test_filters.BOX, 20, test_filters.agents, {"learning_rate": 1e-2}),
    "pixels": (PIXELS, 5, test_convolutions.agents, CONVOLUTIONS),
    "pixels, PyTorch": (PIXELS, 5, test_convolutions.agents, CONVOLUTIONS | {"device": "cpu:0"}),
}
SEEDS = [5, 0, 7]


@pytest.fixture(params=NETWORKS)
def network(request):
    """A space, how many updates are made, and what makes agents for seeds."""
    space, updates, make, changes = NETWORKS[request.param]
    return space, updates, lambda seeds: make(seeds, space, ACTIONS, **changes)


def test_replicas_learn_as_if_alone(network):
    space, updates, make = network
    together, alone = make(SEEDS), [make([seed]) for seed in SEEDS]
    for update in range(updates):
        batch = batch_of(3, seed=update, space=space)
        seen = together.update(batch)
        for r, single in enumerate(alone):
            np.testing.assert_array_equal(seen.td_error[r], single.update(part(batch, r)).td_error[0])
    for name, array in together.weights().items():
        np.testing.assert_array_equal(array, np.concatenate([single.weights()[name] for single in alone]))


@pytest.mark.parametrize("before", [0, 6])
def test_a_restored_population_goes_on_bit_for_bit(network, before, tmp_path):
    """Also some of its replicas, as where the others have ended."""
    space, updates, make = network
    straight, again, some = make([1, 2, 3]), make([9, 9, 9]), make([8, 9])
    for update in range(before):
        straight.update(batch_of(3, seed=update, space=space))
    np.savez(tmp_path / "state.npz", **straight.state())
    state = dict(np.load(tmp_path / "state.npz"))
    again.restore(state)
    some.restore(pick(state, np.array([False, True, True])))
    more = max(updates // 10, 6)  # target networks are copied every 4 updates of modules, 10 of perceptrons
    for update in range(before, before + more):
        batch = batch_of(3, seed=update, space=space)
        fewer = type(batch)(pick(batch, np.array([False, True, True])))
        expected = straight.update(batch).td_error
        np.testing.assert_array_equal(again.update(batch).td_error, expected)
        np.testing.assert_array_equal(some.update(fewer).td_error, expected[1:])
    for name, array in straight.state().items():
        np.testing.assert_array_equal(again.state()[name], array)
        assert array.ndim == 0 or array.shape[0] == 3
    assert again.updates == some.updates == before + more
