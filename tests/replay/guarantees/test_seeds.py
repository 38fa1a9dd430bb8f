"""Guarantee 6: one seed, own generators; the same seed gives the same draws on every machine."""

import random

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Linear, Prioritized, ReLo, ReplayBuffer, Uniform
from replaylab.research import AntiPrioritized, Permuted
from tests.oracle import Stream, stratified_slots, uniform_slots

SAMPLERS = [
    Uniform(),
    Combined(),
    Combined(mode="replace"),
    Prioritized(beta=0.4),
    Prioritized(beta=Linear(0.4, 1)),
]


def make(sampler, seed, replicas=None, capacity=1000):
    buffer = ReplayBuffer(capacity, {"x": Field((), np.int64)}, sampler=sampler, replicas=replicas, seed=seed)
    lead = () if replicas is None else (replicas,)
    ids = buffer.extend(x=np.broadcast_to(np.arange(capacity), (*lead, capacity)))
    if isinstance(sampler, Prioritized):
        buffer.update_priorities(ids, priority=np.broadcast_to(1.0 + np.arange(capacity) % 7, ids.shape))
    return buffer


def draws(buffer, batches=5, batch_size=16):
    return np.stack([buffer.sample(batch_size, progress=0.3).id for _ in range(batches)], axis=-2)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
class TestSeeds:
    def test_same_seed_same_draws(self, sampler):
        for seed in [0, 12345, 2**63, np.random.SeedSequence(8)]:
            first = draws(make(sampler, seed))
            np.testing.assert_array_equal(first, draws(make(sampler, seed)))

    def test_other_seed_other_draws(self, sampler):
        found = [draws(make(sampler, seed)).tobytes() for seed in [None, None, 0, 1, 2, 2**32]]
        assert len(set(found)) == len(found)

    def test_global_seeds_have_no_effect(self, sampler):
        found = set()
        for seed in [1, 2]:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            found.add(draws(make(sampler, 42)).tobytes())
        assert len(found) == 1

    def test_reading_draws_nothing(self, sampler):
        plain, read = make(sampler, 9), make(sampler, 9)
        expected = draws(plain)
        found = []
        for _ in range(5):
            read.probabilities(np.arange(1000), batch_size=16)
            repr(read), len(read), read.nbytes, read.columns["x"].sum()
            found.append(read.sample(16, progress=0.3).id)
        np.testing.assert_array_equal(np.stack(found), expected)


def test_a_seed_sequence_is_not_spent():
    """The buffer must not spawn from the caller's sequence in a way that makes a second use differ."""
    sequence = np.random.SeedSequence(11)
    first = draws(make(Uniform(), sequence))
    np.testing.assert_array_equal(first, draws(make(Uniform(), sequence)))
    np.testing.assert_array_equal(first, draws(make(Uniform(), 11)))


class TestTheSameDrawsOnEveryMachine:
    """Draws written down once, and draws worked out by the oracle's own generator."""

    def test_uniform(self):
        assert make(Uniform(), 0).sample(8).id.tolist() == [90, 370, 337, 370, 979, 730, 652, 593]
        found = make(Uniform(), 2**63, capacity=5).sample(12).id.tolist()
        assert found == [4, 1, 4, 0, 2, 2, 0, 2, 0, 0, 4, 2]

    def test_prioritized(self):
        sampler = Prioritized(alpha=1.0, beta=0.4)
        assert make(sampler, 0).sample(8).id.tolist() == [12, 172, 292, 422, 622, 717, 831, 949]

    @pytest.mark.parametrize(
        ("sampler", "expected"),
        [
            (ReLo(alpha=1.0, beta=0.4), [12, 172, 292, 422, 622, 717, 831, 949]),
            (AntiPrioritized(alpha=1.0, beta=0.4), [9, 169, 290, 420, 622, 715, 830, 947]),
            (Permuted(alpha=1.0, beta=0.4), [198, 710, 730, 365, 66, 314, 433, 287]),
            (Permuted(alpha=1.0, beta=0.4, bins=4), [198, 108, 420, 317, 510, 653, 999, 946]),
        ],
        ids=repr,
    )
    def test_the_prioritized_family(self, sampler, expected):
        assert make(sampler, 0).sample(8).id.tolist() == expected

    @pytest.mark.parametrize("capacity", [1, 2, 3, 5, 64, 1000, 65537])
    def test_uniform_by_the_oracle(self, capacity):
        for seed in [1, 99, 2**40 + 7]:
            stream, buffer = Stream(seed), make(Uniform(), seed, capacity=capacity)
            for batch_size in [1, 7, 64]:
                expected = uniform_slots(stream, capacity, batch_size)
                assert buffer.sample(batch_size).id.tolist() == expected

    @pytest.mark.parametrize("capacity", [1, 2, 3, 5, 64, 1000, 65537])
    def test_prioritized_by_the_oracle(self, capacity):
        """Whole priorities make every sum exact, so no draw can fall on the other side of an edge."""
        sampler = Prioritized(alpha=1.0, beta=0.4)
        masses = (1.0 + np.arange(capacity) % 7).tolist()
        for seed in [1, 99, 2**40 + 7]:
            stream, buffer = Stream(seed), make(sampler, seed, capacity=capacity)
            for batch_size in [1, 7, 64]:
                expected = stratified_slots(stream, masses, batch_size)
                assert buffer.sample(batch_size).id.tolist() == expected

    def test_replicas_of_one_seed_have_spawned_streams(self):
        together = make(Uniform(), 5, replicas=3).sample(20).id
        for r in range(3):
            assert together[r].tolist() == uniform_slots(Stream(5, spawn_key=(r, 0)), 1000, 20)
