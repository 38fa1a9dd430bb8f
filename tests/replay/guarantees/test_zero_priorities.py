"""A step of priority 0 is never drawn, whatever the sampler; of positive ones, ranks and distributions are made."""

import numpy as np
import pytest

from replaylab import ReplayBuffer, replay, research
from replaylab.errors import EmptyBufferError
from tests.replay.buffers import filled
from tests.replay.guarantees.chi2 import assert_distribution

FEEDBACK = [
    replay.Prioritized(beta=0.4),
    replay.ReLo(beta=0.4),
    research.AntiPrioritized(beta=0.4),
    research.Permuted(beta=0.4),
    replay.LAP(),
    replay.RankBased(beta=0.4),
    replay.RankBased(alpha=0.0, beta=0.4),
    replay.Greedy(),
]


def make(sampler, priority, **options):
    priority = np.asarray(priority, float)
    buffer = filled(sampler, len(priority), **options)
    buffer.update_priorities(np.arange(len(priority)), priority=priority)
    return buffer


@pytest.mark.parametrize("sampler", FEEDBACK, ids=repr)
class TestNeverDrawn:
    def test_while_others_are_positive(self, sampler):
        buffer = make(sampler, [0, 0, 2, 0, 5, 0, 1])
        distribution = buffer.probabilities(np.arange(7), batch_size=3)
        zero = {0, 1, 3, 5}
        if isinstance(sampler, research.Permuted):  # the priorities belong to other steps
            zero = set(np.flatnonzero(distribution == 0).tolist())
            assert len(zero) == 4
        for _ in range(200):
            assert not zero & set(buffer.sample(3).id.tolist())
        if distribution is not None:
            assert distribution.sum() == pytest.approx(1.0)
            assert (distribution[list(zero)] == 0).all()

    def test_where_all_are_zero_nothing_can_be_drawn(self, sampler):
        buffer = make(sampler, np.zeros(5))
        with pytest.raises(EmptyBufferError, match="every one of the 5 stored steps has priority 0, so none can be"):
            buffer.sample(2)
        assert (buffer.probabilities(np.arange(5), batch_size=2) == 0).all()
        assert np.isnan(buffer.stats(batch_size=2).entropy or np.nan)
        buffer.update_priorities([3], priority=[0.5])
        assert (buffer.sample(1).id == (buffer._parts.core.probabilities(np.arange(5), 1, [0.4]).argmax())).all()

    def test_a_zero_that_becomes_positive_comes_back_and_goes_again(self, sampler):
        buffer = make(sampler, [0, 3, 1])
        buffer.update_priorities([0], priority=[2.0])
        assert (buffer._parts.core.probabilities(np.arange(3), 3, [0.4]) > 0).all()
        buffer.update_priorities([0, 1], priority=[0.0, 0.0])
        assert (buffer._parts.core.probabilities(np.arange(3), 1, [0.4]) > 0).sum() == 1
        buffer.add(x=3)  # takes the place of a zero, with the largest priority there is
        assert (buffer._parts.core.probabilities(np.arange(1, 4), 2, [0.4]) > 0).sum() == 2


class TestRanks:
    def test_only_positive_ones_count(self):
        buffer = make(replay.RankBased(alpha=1.0, beta=0.0), [0, 4, 0, 2, 1])
        np.testing.assert_allclose(buffer.probabilities(np.arange(5)), np.array([0, 6, 0, 3, 2]) / 11)

    @pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
    def test_draws_and_weights(self, normalize):
        priority = np.random.default_rng(0).exponential(size=50) * (np.arange(50) % 3 > 0)
        buffer = make(replay.RankBased(alpha=0.7, beta=0.5, normalize=normalize), priority)
        distribution = buffer.probabilities(np.arange(50))
        counts = np.zeros(50, np.int64)
        for _ in range(400):
            batch = buffer.sample(32)
            counts += np.bincount(batch.id, minlength=50)
            raw = (50 * distribution[batch.id]) ** -0.5
            largest = {"buffer": (50 * distribution[distribution > 0].min()) ** -0.5, "batch": raw.max(), "none": 1.0}[
                normalize
            ]
            np.testing.assert_allclose(batch.weight, raw / largest, rtol=1e-5)
        assert_distribution(counts, distribution)

    def test_a_td_error_of_zero_is_the_last_rank(self):
        buffer = make(replay.RankBased(alpha=1.0, beta=0.0), np.ones(3))
        buffer.update_priorities([0, 1, 2], td_error=[0.0, -3.0, 1e-300])
        np.testing.assert_allclose(buffer.probabilities(np.arange(3)), np.array([3, 6, 2]) / 11)
        buffer.update_priorities([0, 1, 2], td_error=np.zeros(3))
        assert buffer.sample(3).id.shape == (3,)

    def test_a_tiny_priority_can_be_drawn(self):
        buffer = make(replay.Greedy(), [1e-300, 0.0, 0.0])
        assert buffer.sample(1).id.tolist() == [0]

    def test_greedy_asked_for_more_than_there_are(self):
        buffer = make(replay.Greedy(), [3, 0, 1, 0])
        assert buffer.sample(2).id.tolist() == [0, 2]
        with pytest.raises(EmptyBufferError, match="2 are stored; ask for fewer, or give more a positive priority"):
            buffer.sample(3)
        assert buffer.probabilities(np.arange(4), batch_size=3).tolist() == [0.5, 0, 0.5, 0]

    def test_zeros_go_into_a_snapshot_and_come_back(self, tmp_path):
        for sampler in (replay.RankBased(beta=0.0), replay.Greedy()):
            buffer = make(sampler, [3, 0, 1, 0, 2])
            buffer.save(tmp_path)
            other = ReplayBuffer.load(tmp_path)
            distribution = buffer.probabilities(np.arange(5), batch_size=2)
            np.testing.assert_array_equal(other.probabilities(np.arange(5), batch_size=2), distribution)
            other.update_priorities([1], priority=[9.0])
            assert other.probabilities([1], batch_size=2) > 0

    def test_in_a_mixture(self):
        buffer = make(replay.Mixture((replay.Uniform(), replay.RankBased(beta=0.0))), np.zeros(4))
        with pytest.raises(EmptyBufferError, match="has priority 0"):
            buffer.sample(4)
