"""The priority of steps that had no feedback yet, and what stored priorities mean under another exponent."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import LAP, Mixture, Prioritized, RankBased, ReLo, ReplayBuffer, Uniform
from replaylab.research import AntiPrioritized, Permuted
from tests.oracle import OracleReplica
from tests.replay.buffers import filled

KINDS = (Prioritized, ReLo, AntiPrioritized, Permuted, LAP, RankBased)


def make(sampler, capacity=8, steps=0, **options):
    return filled(sampler, capacity, steps, **options)


def distribution(buffer, ids):
    return buffer._parts.core.probabilities(np.asarray(ids), 1, [0.0])


class TestTheLargestEver:
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_spike_is_remembered(self, kind):
        ever, stored = (make(kind(alpha=1.0, new_steps=n), 4, 4) for n in ("largest_ever", "largest_stored"))
        anti = kind is AntiPrioritized
        for buffer in (ever, stored):
            buffer.update_priorities(np.arange(4), priority=np.array([100.0, 2, 3, 4]) ** (-1.0 if anti else 1.0))
            buffer.extend(x=np.zeros(3, np.int64))  # the spike is overwritten first, then 2 and 3
            buffer.add(x=0)  # and the last
            buffer.update_priorities([7], priority=[0.5 if anti else 2.0])
        distributions = [distribution(buffer, np.arange(4, 8)) for buffer in (ever, stored)]
        if kind is Permuted:
            distributions = [np.sort(each)[::-1] for each in distributions]
        if kind is RankBased:
            np.testing.assert_allclose(distributions[0], distributions[1])
        else:
            np.testing.assert_allclose(distributions[0], np.array([100, 100, 100, 2]) / 302, rtol=1e-6)
            np.testing.assert_allclose(distributions[1], np.array([4, 4, 4, 2]) / 14, rtol=1e-6)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_snapshot_holds_it(self, kind, tmp_path):
        buffer = make(kind(new_steps="largest_ever"), 3, 3)
        buffer.update_priorities([0, 1, 2], priority=[100.0, 2.0, 3.0])
        buffer.extend(x=np.zeros(3, np.int64))
        buffer.update_priorities([3, 4, 5], priority=[1.0, 2.0, 3.0])
        buffer.save(tmp_path)
        other = ReplayBuffer.load(tmp_path, continue_episodes=True)
        assert other.sampler == buffer.sampler
        for each in (buffer, other):
            each.extend(x=np.zeros(2, np.int64))
        np.testing.assert_array_equal(distribution(buffer, [5, 6, 7]), distribution(other, [5, 6, 7]))

    @pytest.mark.parametrize("new_steps", ["largest_stored", "largest_ever"])
    @pytest.mark.parametrize("kind", [Prioritized, RankBased])
    def test_the_oracle_agrees(self, kind, new_steps):
        sampler = kind(new_steps=new_steps)
        buffer, oracle, rng = make(sampler, 7), OracleReplica(7, sampler), np.random.default_rng(0)
        for _ in range(200):
            for _ in range(int(rng.integers(1, 4))):
                buffer.add(x=0)
                oracle.add({})
            ids = rng.choice(np.array(oracle.stored), 3)
            values = rng.exponential(size=3) * (rng.random(3) > 0.2)
            buffer.update_priorities(ids, priority=values)
            oracle.update_priorities(ids.tolist(), values.tolist())
            if any(oracle.priorities.values()):
                wanted = oracle.distribution(4)
                np.testing.assert_allclose(distribution(buffer, list(wanted)), list(wanted.values()), rtol=3e-6)

    def test_a_wrong_one_is_refused(self):
        for kind in KINDS:
            message = f'`new_steps` of {kind.__name__} must be "largest_stored" or "largest_ever", but got \'max\''
            with pytest.raises(ConfigError, match=message):
                kind(new_steps="max")


class TestAntiPrioritized:
    def test_a_new_step_is_as_likely_as_the_likeliest(self):
        """Its priority is (|δ| + ε)^−α, of which the largest belongs to the smallest error."""
        buffer = make(AntiPrioritized(alpha=1.0, epsilon=0.0), 8, 3)
        buffer.update_priorities([0, 1, 2], td_error=[4.0, -2.0, 8.0])
        buffer.add(x=3)
        np.testing.assert_allclose(distribution(buffer, np.arange(4)), np.array([2, 4, 1, 4]) / 11)
        assert buffer.stats().largest_priority == 0.5

    @pytest.mark.parametrize("alpha", [0.0, 1.0])
    def test_an_error_of_0_comes_most_often(self, alpha):
        """Without ε, too; a priority of 0 is never drawn."""
        buffer = make(AntiPrioritized(alpha=alpha, epsilon=0.0), 8, 3)
        buffer.update_priorities([0, 1, 2], td_error=[0.0, 1.0, 2.0])
        np.testing.assert_allclose(distribution(buffer, np.arange(3)), [1, 0, 0] if alpha else [1 / 3] * 3, atol=1e-12)
        buffer.update_priorities([0, 1, 2], priority=[0.0, 1.0, 2.0])
        np.testing.assert_allclose(
            distribution(buffer, np.arange(3)), [0, 2 / 3, 1 / 3] if alpha else [0, 1 / 2, 1 / 2]
        )


class TestAnotherExponent:
    PRIORITY = np.array([0.0, 1e-3, 0.5, 1.0, 7.0, 300.0])

    def saved(self, sampler, tmp_path, **options):
        buffer = make(sampler, 6, 6, **options)
        buffer.update_priorities(np.arange(6), priority=self.PRIORITY)
        buffer.save(tmp_path)
        return buffer

    @pytest.mark.parametrize("old", [Prioritized(alpha=0.6), LAP(alpha=0.4), AntiPrioritized(alpha=0.9)], ids=repr)
    @pytest.mark.parametrize("new", [Prioritized(alpha=0.3), ReLo(alpha=1.0), AntiPrioritized(alpha=0.5)], ids=repr)
    def test_priorities_keep_their_meaning(self, old, new, tmp_path):
        self.saved(old, tmp_path)
        other = ReplayBuffer.load(tmp_path, sampler=new)
        fresh = make(new, 6, 6)
        fresh.update_priorities(np.arange(6), priority=self.PRIORITY)
        np.testing.assert_allclose(distribution(other, np.arange(6)), distribution(fresh, np.arange(6)), rtol=1e-5)
        for each in (other, fresh):
            each.update_priorities([2], priority=[20.0])
        np.testing.assert_allclose(distribution(other, np.arange(6)), distribution(fresh, np.arange(6)), rtol=1e-5)

    def test_of_exponent_zero_only_what_is_positive_is_known(self, tmp_path):
        self.saved(Prioritized(alpha=0.0), tmp_path)
        other = ReplayBuffer.load(tmp_path, sampler=Prioritized(alpha=0.5))
        np.testing.assert_allclose(distribution(other, np.arange(6)), np.array([0, 1, 1, 1, 1, 1]) / 5)

    def test_in_a_mixture(self, tmp_path):
        self.saved(Mixture((Uniform(), Prioritized(alpha=0.6, beta=0.0))), tmp_path)
        parts = (Uniform(), Prioritized(alpha=1.0, beta=0.0))
        other = ReplayBuffer.load(tmp_path, sampler=Mixture(parts))
        wanted = (1 / 6 + self.PRIORITY / self.PRIORITY.sum()) / 2
        np.testing.assert_allclose(other.probabilities(np.arange(6), batch_size=2), wanted, rtol=1e-5)
