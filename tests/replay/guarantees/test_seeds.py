"""Guarantee 6: one seed, own generators; the same seed gives the same draws on every machine."""

import numpy as np
import pytest

from replaylab.replay import Combined, Field, Linear, Prioritized, ReplayBuffer, Uniform
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
    def test_other_seed_other_draws(self, sampler):
        sequences = [draws(make(sampler, seed)).tobytes() for seed in [None, None, 0, 1, 2, 2**32]]
        assert len(set(sequences)) == len(sequences)

    def test_reading_draws_nothing(self, sampler):
        plain, read = make(sampler, 9), make(sampler, 9)
        expected = draws(plain)
        drawn = []
        for _ in range(5):
            read.probabilities(np.arange(1000), batch_size=16)
            repr(read), len(read), read.nbytes, read.columns["x"].sum()
            drawn.append(read.sample(16, progress=0.3).id)
        np.testing.assert_array_equal(np.stack(drawn), expected)


def test_a_seed_sequence_is_not_spent():
    """The buffer must not spawn from the caller's sequence in a way that makes a second use differ."""
    sequence = np.random.SeedSequence(11)
    first = draws(make(Uniform(), sequence))
    np.testing.assert_array_equal(first, draws(make(Uniform(), sequence)))
    np.testing.assert_array_equal(first, draws(make(Uniform(), 11)))


class TestTheSameDrawsOnEveryMachine:
    """Draws written down once, and draws worked out by the oracle's own generator."""

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
