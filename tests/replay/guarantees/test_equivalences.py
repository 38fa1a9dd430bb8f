"""Different ways of saying the same thing give the same buffer: contents, sampling distributions and draws."""

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Prioritized, ReplayBuffer, Uniform
from tests.replay.buffers import FLAGS

FIELDS = {"x": Field((3,), np.int32), "next_obs": Field((2,)), **FLAGS}
SAMPLERS = [Uniform(), Combined(), Prioritized(alpha=0.7, beta=0.4)]
MODES = [None, "next_step", "same_step"]


def random_steps(rng, lead, mode):
    steps = {
        "x": rng.integers(-1000, 1000, (*lead, 3)).astype(np.int32),
        "next_obs": rng.random((*lead, 2), np.float32),
        "terminated": rng.random(lead) < 0.2,
        "truncated": rng.random(lead) < 0.2,
        "where": rng.random(lead) < 0.8,
    }
    return steps | ({"final_obs": rng.random((*lead, 2), np.float32)} if mode == "same_step" else {})


def index(steps, *at):
    return {name: value[at] for name, value in steps.items()}


def make(capacity, sampler, mode, **options):
    return ReplayBuffer(capacity, FIELDS, sampler=sampler, autoreset=mode, **options)


def assert_equal_buffers(one, other, known):
    """Compare contents, the sampling distribution of the first `known` ids, and the draws to come."""
    np.testing.assert_array_equal(one.size, other.size)
    for name in FIELDS:
        np.testing.assert_array_equal(one.columns[name], other.columns[name])
    ids = np.arange(known) if one.replicas is None else np.tile(np.arange(known), (one.replicas, 1))
    first, second = (buffer.probabilities(ids, batch_size=8) for buffer in (one, other))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.sample(8).id, other.sample(8).id)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("capacity", [3, 16, 100])
class TestEquivalences:
    def test_extend_is_many_adds(self, capacity, sampler, mode):
        rng = np.random.default_rng(capacity)
        one, other = (make(capacity, sampler, mode, num_envs=2, replicas=3, seed=1) for _ in range(2))
        for T in [1, 2, 17, 40]:
            steps = random_steps(rng, (3, T, 2), mode)
            ids = one.extend(**steps)
            by_one = np.stack([other.add(**index(steps, slice(None), t)) for t in range(T)], axis=1)
            np.testing.assert_array_equal(ids, by_one)
            td_error = rng.normal(size=ids.shape)
            assert one.update_priorities(ids, td_error) == other.update_priorities(ids, td_error)
            assert_equal_buffers(one, other, int(ids.reshape(3, -1).max(axis=1).min()) + 1)

    def test_replicas_are_single_buffers(self, capacity, sampler, mode):
        rng = np.random.default_rng(capacity)
        seeds = [8, 3, 8]
        together = make(capacity, sampler, mode, num_envs=2, replicas=3, seed=seeds)
        singles = [make(capacity, sampler, mode, num_envs=2, seed=seed) for seed in seeds]
        for T in [1, 2, 17, 40]:
            steps = random_steps(rng, (3, T, 2), mode)
            ids = together.extend(**steps)
            td_error = rng.normal(size=ids.shape)
            total = together.update_priorities(ids, td_error)
            batch = together.sample(9)
            for r, single in enumerate(singles):
                np.testing.assert_array_equal(single.extend(**index(steps, r)), ids[r])
                total -= single.update_priorities(ids[r], td_error[r])
                alone = single.sample(9)
                for name in alone:
                    np.testing.assert_array_equal(alone[name], batch[name][r])
                for name in FIELDS:
                    np.testing.assert_array_equal(single.columns[name], together.columns[name][r])
            assert total == 0
