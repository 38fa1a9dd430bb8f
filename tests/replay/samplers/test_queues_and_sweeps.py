"""`Queue` and `Recency`, which go in order or count their calls; the order of rows without replacement; `min_size`.

False alarms: see `chi2.py`.
"""

import os
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from replaylab.errors import EmptyBufferError
from replaylab.replay import LaBER, Mixture, Prioritized, Queue, Recency, ReplayBuffer, SharedMemory, Uniform
from tests.replay.buffers import Even, filled
from tests.replay.guarantees.chi2 import assert_distribution


class TestQueue:
    @pytest.mark.parametrize("replicas", [None, 1, 3])
    @pytest.mark.parametrize("capacity", [7, 20, 1000])
    def test_each_step_once_in_order(self, capacity, replicas):
        buffer, rng = filled(Queue(), capacity, 0, replicas=replicas), np.random.default_rng(1)
        lead, taken, added = buffer.size if replicas is None else (replicas,), 0, 0
        lead = () if replicas is None else (replicas,)
        for _ in range(100):
            steps = int(rng.integers(0, 9))
            buffer.extend(x=np.zeros((*lead, steps)).astype(np.int64))
            added += steps
            taken = max(taken, added - capacity)
            n = int(rng.integers(1, 7))
            if n > added - taken:
                with pytest.raises(EmptyBufferError, match=f"batch_size={n} and only {added - taken} of "):
                    buffer.sample(n)
                continue
            stored = np.arange(max(0, added - capacity), added)
            distribution = buffer.probabilities(np.broadcast_to(stored, (*lead, len(stored))), batch_size=n)
            np.testing.assert_array_equal(
                distribution, np.broadcast_to(((stored >= taken) & (stored < taken + n)) / n, distribution.shape)
            )
            batch = buffer.sample(n)
            np.testing.assert_array_equal(batch.id, np.broadcast_to(np.arange(taken, taken + n), (*lead, n)))
            assert (batch.probability == 1 / n).all()
            assert (batch.weight == 1).all()
            taken += n

    def test_it_goes_on_after_loading_and_in_a_part(self, tmp_path):
        buffer = filled(Queue(), replicas=2)
        buffer.sample(5)
        buffer.save(tmp_path)
        assert ReplayBuffer.load(tmp_path).sample(2).id.tolist() == [[5, 6]] * 2
        assert buffer.part([1]).sample(2).id.tolist() == [[5, 6]]

    def test_over_rows_that_other_processes_share(self):
        """Each buffer has its own queue; one that was left behind continues with the oldest that is stored."""
        storage = SharedMemory(f"replaylab-queue-{os.getpid()}")
        buffer = filled(Queue(), storage=storage)
        two = buffer.handle().open()
        try:
            assert buffer.sample(3).id.tolist() == two.sample(3).id.tolist() == [0, 1, 2]
            buffer.extend(x=np.arange(50))
            assert two.sample(2).id.tolist() == buffer.sample(2).id.tolist() == [50, 51]
        finally:
            two.close()
            buffer.close()
            storage.unlink()

    def test_in_a_mixture(self):
        buffer = filled(Mixture((Queue(), Uniform())))
        assert buffer.sample(6).id.tolist()[:3] == [0, 1, 2]
        assert buffer.sample(6).id.tolist()[:3] == [3, 4, 5]

    def test_an_error_takes_nothing(self):
        buffer = filled(Queue())
        with pytest.raises(EmptyBufferError):
            buffer.sample(21)
        assert buffer.sample(20).id.tolist() == list(range(20))
        assert np.isnan(buffer.stats(batch_size=1).entropy)


class TestWithoutReplacement:
    def test_every_order_is_alike(self):
        buffer = filled(Uniform(replace=False), 4, 4)
        orders = {order: i for i, order in enumerate(permutations(range(4), 3))}
        counts = Counter(orders[tuple(buffer.sample(3).id.tolist())] for _ in range(5000))
        assert_distribution(np.array([counts[i] for i in range(24)]), np.full(24, 1 / 24))

    def test_all_of_them_do_not_come_sorted(self):
        ids = filled(Uniform(replace=False), 1000, 1000).sample(1000).id
        assert sorted(ids.tolist()) == list(range(1000))
        assert 400 < (np.diff(ids) > 0).sum() < 600  # 500 ± 9 in a random order


class TestRecency:
    def test_k_counts_calls_and_nothing_else_begins_a_burst(self):
        buffer = filled(Recency(eta=0.998, least=1, burst=4), 100, 0)
        widths = []
        for step in range(8):
            buffer.extend(x=np.zeros(50 if step == 0 else 0, np.int64))
            widths.append(round(1 / buffer.sample(1).probability.item()))
            buffer.end_episode()
        wanted = [int(50 * 0.998 ** (1000 * k / 4)) for k in (1, 2, 3, 4)]
        assert widths == wanted + wanted
        assert len(set(wanted)) == 4

    def test_as_many_as_fit_are_always_within_reach(self):
        buffer = filled(Recency(eta=0.9, least=2**53), 5, 5)
        assert buffer.sample(2).probability.tolist() == [0.2, 0.2]


class TestMinSize:
    @pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4), Even(), LaBER(lambda pool: pool.x + 1)])
    @pytest.mark.parametrize("replicas", [None, 2])
    def test_nothing_is_drawn_until_so_many_are_stored(self, sampler, replicas):
        buffer = filled(sampler, 20, 4, min_size=5, replicas=replicas)
        assert buffer.min_size == 5
        for _ in range(2):
            with pytest.raises(
                EmptyBufferError, match="the buffer was made with min_size=5, but only 4 steps are stored"
            ):
                buffer.sample(2)
        buffer.extend(x=np.zeros((1,) if replicas is None else (replicas, 1), np.int64))
        assert buffer.sample(2).id.shape[-1] == 2

    def test_it_counts_each_replica(self):
        buffer = filled(Uniform(), 20, 5, min_size=6, replicas=2)
        buffer.add(x=np.zeros(2, np.int64), where=np.array([True, False]))
        with pytest.raises(EmptyBufferError, match="only 5 steps"):
            buffer.sample(1)

    def test_it_is_saved(self, tmp_path):
        buffer = filled(Uniform(), 20, 4, min_size=5)
        buffer.save(tmp_path)
        with pytest.raises(EmptyBufferError, match="min_size=5"):
            ReplayBuffer.load(tmp_path).sample(1)

    def test_an_empty_buffer_raises(self):
        with pytest.raises(EmptyBufferError, match="made with min_size=5, but only 0 steps are stored"):
            filled(Uniform(), 20, 0, min_size=5).sample(1)
        for sampler in (Uniform(), Even()):
            with pytest.raises(EmptyBufferError, match="the buffer is empty"):
                filled(sampler, 20, 0).sample(1)
