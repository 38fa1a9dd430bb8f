"""The trap of work that grows with the buffer."""

import time
import tracemalloc

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay, research
from tests.replay.buffers import filled


@pytest.mark.no_sanitizer
class TestTrap10WorkDoesNotGrowWithTheBuffer:
    """A hundred times as many steps must not take twenty times as long; what is O(N) takes a hundred times."""

    SMALL, LARGE = 10_000, 1_000_000
    SAMPLERS = (
        replay.Uniform(),
        replay.Recency(least=1_000),
        replay.Geometric(),
        replay.Prioritized(),
        research.Permuted(),
        replay.LAP(),
        replay.RankBased(),
        replay.Mixture((replay.Uniform(), replay.Prioritized())),
    )

    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
    def test_trap_10_of_add_sample_update_and_distribution(self, sampler):
        small, large = (self.seconds(sampler, capacity) for capacity in (self.SMALL, self.LARGE))
        for call in small:
            assert large[call] < 20 * small[call] + 20e-6, call

    def seconds(self, sampler, capacity):
        """Return the shortest time of 50 calls each, on a full buffer."""
        buffer = filled(sampler, capacity)
        rng, ids = np.random.default_rng(0), np.arange(capacity)
        buffer.update_priorities(ids, rng.exponential(size=capacity))
        best = {}
        for _ in range(50):
            batch = buffer.sample(32, progress=0.5)
            calls = {
                "add": lambda: buffer.add(x=0),
                "sample": lambda: buffer.sample(32, progress=0.5),
                "update": lambda batch=batch: buffer.update_priorities(batch.id, rng.exponential(size=32)),
                "distribution": lambda batch=batch: buffer.probabilities(batch.id, batch_size=32, progress=0.5),
            }
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                best[name] = min(best.get(name, 1.0), time.perf_counter() - start)
        return best

    def test_trap_10_the_test_can_fail(self):
        class Scan(ReplayBuffer):
            def sample(self, batch_size, **options):
                np.random.default_rng(0).permutation(self.size)
                return super().sample(batch_size, **options)

        small, large = (self.timed(Scan, capacity) for capacity in (self.SMALL, self.LARGE))
        assert large > 20 * small + 20e-6

    def timed(self, kind, capacity):
        buffer = kind(capacity, {"x": Field()})
        buffer.extend(x=np.zeros(capacity, np.float32))
        best = 1.0
        for _ in range(10):
            start = time.perf_counter()
            buffer.sample(32)
            best = min(best, time.perf_counter() - start)
        return best


@pytest.mark.no_sanitizer
def test_reading_many_replicas_looks_at_each_once():
    """The cost of a replica does not grow with their number; it grew 64-fold when each check covered all."""

    def seconds_a_replica(replicas):
        buffer = ReplayBuffer(20, {"x": Field()}, replicas=replicas, seed=0)
        buffer.extend(x=np.zeros((replicas, 20)))
        ids = np.tile(np.arange(20), (replicas, 5))
        best = np.inf
        for _ in range(20):
            begun = time.perf_counter()
            buffer.get(ids)
            best = min(best, time.perf_counter() - begun)
        return best / replicas

    assert seconds_a_replica(1024) < 8 * seconds_a_replica(16)


def test_figures_of_sequences_take_memory_for_steps_alone():
    buffer = ReplayBuffer(20_000, {"x": Field()}, transforms=[replay.Sequence(1000, 0, 0)], episodes="manual", seed=0)
    buffer.extend(x=np.zeros(20_000))
    buffer.stats()
    tracemalloc.start()
    try:
        assert buffer.stats().effective_size == pytest.approx(20)
        assert tracemalloc.get_traced_memory()[1] < 20_000 * 8 * 20
    finally:
        tracemalloc.stop()
