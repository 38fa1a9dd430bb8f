"""A device's replay beside a host's: the same steps, transformed alike, and the same probabilities."""

from itertools import product

import numpy as np
import pytest
import torch

from replaylab.replay import LAP, Combined, FrameStack, Geometric, NStep, Prioritized, Recency, ReLo, Uniform
from tests.torch.worlds import FIELDS, World, assert_same_batches, leaves, on_host

STACKS = {
    None: (),
    "repeat": (FrameStack(3, ("obs.camera", "obs.flag")),),
    "zero": (FrameStack(2, padding="zero"),),
}
N_STEPS = {1: (), 3: (NStep(3, 0.9, last=("tag",)),), 2: (NStep(2, 1.0),)}
CASES = list(product(("stored", "derived"), STACKS, N_STEPS))


@pytest.mark.parametrize(("next_obs", "stack", "n_step"), CASES)
def test_every_step_becomes_the_same(next_obs, stack, n_step, device):
    seed = CASES.index((next_obs, stack, n_step))
    num_envs, capacity = [(None, 7), (2, 8), (3, 9), (2, 2)][seed % 4]
    transforms = (*STACKS[stack], *N_STEPS[n_step])
    world = World(seed, capacity, num_envs, {"device": device}, transforms=transforms, next_obs=next_obs)
    for length in (1, 2, 5, 11):
        world.run(length)
        assert_same_batches(world.device, world.host, next_obs == "derived")
        assert len(world.device) == len(world.host)


SAMPLERS = [
    Uniform(),
    Combined(),
    Combined(mode="replace"),
    Recency(0.999, least=3, burst=2),
    Geometric(4.0),
    Prioritized(0.6, 0.4),
    Prioritized(1.0, 0.4, epsilon=0.5, new_steps="largest_ever"),
    ReLo(0.5, 0.4),
    LAP(0.4),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_probabilities_and_stored_priorities_are_the_same(sampler, device):
    rng = np.random.default_rng(0)
    world = World(1, 12, 3, {"device": device}, sampler=sampler)
    for length in (1, 2, 1, 4, 9):
        world.run(length)
        ids = np.arange(-1, world.host.next_id)
        for _ in range(2):
            wanted = world.host.probabilities(ids, batch_size=5)
            distribution = world.device.probabilities(ids, batch_size=5)
            assert np.allclose(on_host(distribution), wanted, atol=2e-6)
            world.host.sample(5)
            assert world.device.sample(5).id.shape == (sampler.rows(5),)
            fed = rng.integers(-1, world.host.next_id, 6)
            errors = rng.normal(size=6) * rng.choice([0.1, 1.0, 10.0], 6)
            applied = world.device.update_priorities(fed, torch.from_numpy(errors))
            assert int(applied) == world.host.update_priorities(fed, errors)
            if sampler.takes_priorities:
                assert int(world.device.update_priorities(fed, priority=2.0)) == world.host.update_priorities(
                    fed, priority=2.0
                )


def test_batches_hold_what_as_batch_shows(device):
    options = {"next_obs": "derived", "sampler": Prioritized(0.6, 0.4)}
    world = World(4, 30, 3, {"device": device}, transforms=N_STEPS[3], **options)
    world.run(14)
    batch = world.device.sample(50)
    drawn, wanted = dict(leaves(batch)), world.host.as_batch(drawn_ids := on_host(batch.id))
    assert np.array_equal(drawn["tag"], wanted.tag)
    assert np.allclose(drawn["reward"], wanted.reward, rtol=2e-7, atol=1e-7)
    assert np.array_equal(drawn["discount"], wanted.discount)
    assert np.allclose(drawn["probability"], on_host(world.device.probabilities(drawn_ids)))


def test_final_observations_of_same_step_environments(device):
    world = World(5, 12, 3, {"device": device}, next_obs="derived", autoreset="same_step")
    for _ in range(9):
        steps = world.make_steps((3,))
        final = world.observations((3,))
        ids = [replay.add(final_obs=final, **steps) for replay in (world.host, world.device)]
        assert np.array_equal(*map(on_host, ids))
    assert_same_batches(world.device, world.host, derived=True)


@pytest.mark.filterwarnings("ignore:DeviceReplay keeps")
def test_a_full_side_ring_drops_the_oldest_steps(device):
    """Nothing wrong is drawn, and nothing else is lost."""
    options = {"next_obs": "derived", "sampler": Prioritized(0.6, 0.4)}
    world = World(6, 40, 2, {"device": device, "final_obs_share": 0.1}, **options)
    rng = np.random.default_rng(1)
    early = 0
    for _ in range(12):
        world.run(3)
        stats = world.device.stats()
        early = max(early, stats.dropped_early)
        ids = np.arange(world.host.next_id - stats.size, world.host.next_id)
        assert len(ids) % 2 == 0
        stored, wanted = world.device.get(ids), world.host.get(ids)
        continues = ~wanted["terminated"]
        assert np.array_equal(on_host(stored["next_obs"]["camera"])[continues], wanted["next_obs"]["camera"][continues])
        batch = world.device.sample(200)
        assert set(batch.id.tolist()) <= set(ids.tolist())
        probabilities = world.device.probabilities(np.arange(world.host.next_id))
        assert abs(float(probabilities.sum()) - 1) < 1e-12
        world.device.update_priorities(batch.id, torch.from_numpy(rng.normal(size=200)))
    assert early > 0


def test_halves_are_stored_in_sixteen_bits(device):
    half = World(7, 12, 3, {"device": device, "half": {"obs.speed": "bfloat16"}}, next_obs="derived")
    exact = World(7, 12, 3, {"device": device}, next_obs="derived")
    for world in (half, exact):
        world.run(9)
    assert half.device.nbytes < exact.device.nbytes
    assert_same_batches(half.device, half.host, derived=True)  # zeros and ones, which 16 bits hold
    assert half.device.sample(1).obs["speed"].dtype == torch.float32
    assert FIELDS["obs"]["speed"].dtype == np.float32


def test_returns_of_rewards_in_sixteen_bits(device):
    """A single number keeps 32 bits, since it would take a word of a row anyway."""
    options = {"device": device, "half": {"reward": "bfloat16", "action": "float16"}}
    half = World(7, 12, 3, options, transforms=N_STEPS[3])
    half.run(9)
    ids = np.concatenate(half.host.stored_ids())
    batch, wanted = half.device.as_batch(ids), half.host.as_batch(ids)
    assert np.allclose(on_host(batch.reward), wanted.reward, rtol=2e-7, atol=1e-7)
    assert np.allclose(on_host(batch.action), wanted.action, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(on_host(batch.action), wanted.action)
