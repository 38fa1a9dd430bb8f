"""LaBER: what is kept of a pool, and that the weighted mean stays unbiased. False alarms: see `chi2.py`."""

from itertools import product

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, LaBER, NStep, Oracle, ReplayBuffer, Sequence
from replaylab.replay.data.batch import Batch
from tests.replay.buffers import FLAGS, filled, transition
from tests.replay.guarantees.chi2 import assert_distribution

SCORES = np.array([0.5, 0.0, 3.0, 1.0, 0.25])
VALUES = np.array([7.0, 0.0, -20.0, 11.0, 5.0])


def make(score, m=4, capacity=5, **options):
    return filled(LaBER(score, m), capacity, **options)


class Scripted:
    """A generator whose next uniform numbers are given."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers, float)

    def random(self, n):
        return self.numbers[:n]


def expected_rows(pool_ids, uniform, scores=SCORES):
    """Return the rows kept of this pool for these uniform numbers."""
    buffer = ReplayBuffer(1, {"x": Field()}, sampler=LaBER(lambda pool: scores[pool.id]))
    rescorer = buffer._parts.engine
    rescorer._generators = [Scripted(uniform)]
    return rescorer.keep(Batch({"id": np.asarray(pool_ids), "weight": None, "probability": None}), len(uniform))


class TestExpectation:
    """Exact, by enumeration of every pool of a buffer of five steps, and of every row that can be kept of it."""

    def test_the_weighted_mean_is_the_plain_mean(self):
        total = 0.0
        for pool in product(range(5), repeat=4):
            scores = SCORES[list(pool)]
            if not scores.any():  # then all are alike, and the rows it holds are of step 1, whose value is 0
                continue
            # Numbers in the middle of each row's part of the sum, so that every row is kept once.
            edges = np.concatenate([[0.0], scores.cumsum() / scores.sum()])
            rows = np.flatnonzero(scores)
            batch = expected_rows(pool, (edges[rows] + edges[rows + 1]) / 2)
            assert batch.id.tolist() == [pool[row] for row in rows]
            np.testing.assert_allclose(batch.probability, scores[rows] / scores.sum(), rtol=1e-12)
            total += (batch.probability * batch.weight * VALUES[batch.id]).sum()
        assert total / 5**4 == pytest.approx(VALUES.mean(), rel=1e-6)

    def test_without_the_weights_it_is_not(self):
        """So the test above can fail."""
        total = sum(
            (SCORES[list(pool)] * VALUES[list(pool)]).sum() / SCORES[list(pool)].sum()
            for pool in product(range(5), repeat=4)
            if SCORES[list(pool)].any()
        )
        assert abs(total / 5**4 - VALUES.mean()) > 1.0


@pytest.mark.parametrize("replicas", [None, 1, 3])
def test_rows_follow_the_distribution_given_their_pool(replicas):
    pools = []

    def score(pool):
        pools.append(pool.id)
        return SCORES[pool.id]

    buffer = make(score, m=3, replicas=replicas)
    counts, distribution = np.zeros((replicas or 1, 5)), np.zeros((replicas or 1, 5))
    for _ in range(1500):
        batch = buffer.sample(4)
        ids, pool = (np.reshape(each, (replicas or 1, -1)) for each in (batch.id, pools[-1]))
        assert pool.shape[1] == 12
        for r in range(replicas or 1):
            scores = SCORES[pool[r]] if SCORES[pool[r]].any() else np.ones(12)
            counts[r] += np.bincount(ids[r], minlength=5)
            distribution[r] += np.bincount(pool[r], scores / scores.sum(), minlength=5)
    for r in range(replicas or 1):
        assert_distribution(counts[r].astype(int), distribution[r] / distribution[r].sum())


class TestTheBatch:
    def test_rows_are_of_the_pool(self):
        pools = []
        buffer = make(lambda pool: pools.append(pool) or pool.x + 1.0, steps=100, capacity=100)
        batch = buffer.sample(16)
        assert len(pools[0].id) == 64
        assert set(batch.id.tolist()) <= set(pools[0].id.tolist())
        np.testing.assert_array_equal(batch.x, batch.id)
        scores = pools[0].x + 1.0
        np.testing.assert_allclose(batch.weight, scores.mean() / (batch.x + 1.0), rtol=1e-6)
        np.testing.assert_allclose(batch.probability, (batch.x + 1.0) / scores.sum(), rtol=1e-12)

    def test_a_row_of_score_zero_is_never_kept(self):
        buffer = make(lambda pool: pool.x % 2, steps=100, capacity=100)
        assert (np.concatenate([buffer.sample(32).x for _ in range(50)]) % 2 == 1).all()

    def test_not_even_at_the_edges_of_the_sum(self):
        scores = np.array([0.0, 0.1, 0.0, 0.2, 0.0])
        assert expected_rows(range(5), [0.0, np.nextafter(1.0, 0.0)], scores).id.tolist() == [1, 3]

    def test_where_all_scores_are_zero_all_rows_are_alike(self):
        buffer = make(lambda pool: np.zeros(len(pool.id)), steps=100, capacity=100)
        batch = buffer.sample(8)
        assert (batch.weight == 1.0).all()
        np.testing.assert_allclose(batch.probability, 1 / 32)

    def test_scores_of_any_size(self):
        for size in (1e308, 5e-324):
            batch = make(lambda pool, size=size: np.full(len(pool.id), size)).sample(4)
            np.testing.assert_allclose(batch.probability, 1 / 16)

    def test_the_pool_is_transformed_and_nested(self):
        fields = transition({"a": Field((2,)), "b": (Field(),)})
        sampler = LaBER(lambda pool: pool.reward + pool.discount + pool.obs["b"][0])
        buffer = ReplayBuffer(10, fields, replicas=2, sampler=sampler, transforms=[NStep(2, 0.5)], seed=0)
        obs = {"a": np.ones((2, 6, 2)), "b": (np.ones((2, 6)),)}
        ends = np.zeros((2, 6), bool)
        buffer.extend(obs=obs, next_obs=obs, reward=np.ones((2, 6)), terminated=ends, truncated=ends)
        batch = buffer.sample(3)
        assert batch.obs["a"].shape == (2, 3, 2)
        assert batch.obs["b"][0].shape == batch.discount.shape == batch.n_steps.shape == (2, 3)


class TestTheScoreFunction:
    def test_it_may_call_the_buffer(self):
        def score(pool):
            buffer.update_priorities(pool.id, np.ones(pool.id.shape))
            buffer.add(x=99)
            return np.ones(len(buffer.get(pool.id[:1])["x"])).repeat(len(pool.id))

        buffer = make(score, steps=50, capacity=1000)
        assert buffer.sample(4).x.shape == (4,)

    def test_a_replica_draws_as_a_single_buffer(self):
        together = make(lambda pool: pool.x + 1.0, steps=40, capacity=50, replicas=2, seed=[3, 11])
        alone = [make(lambda pool: pool.x + 1.0, steps=40, capacity=50, seed=seed) for seed in (3, 11)]
        for _ in range(5):
            np.testing.assert_array_equal(together.sample(8).id, [single.sample(8).id for single in alone])


class TestRefusals:
    def test_the_distribution(self):
        buffer = make(lambda pool: pool.x + 1.0)
        assert not buffer.sampler.has_closed_form
        with pytest.raises(ConfigError) as caught:
            buffer.probabilities([0])
        assert str(caught.value) == (
            "LaBER has no closed form of its sampling probability: a row's probability depends on its whole pool; "
            "batch.probability is the one given the pool"
        )

    def test_out(self):
        buffer = make(lambda pool: pool.x + 1.0)
        with pytest.raises(ConfigError, match="`out` is not taken with a sampler written in Python; leave it out"):
            buffer.sample(4, out=buffer.sample(4))


@pytest.mark.parametrize("replicas", [None, 2])
def test_what_is_kept_counts_as_drawn(replicas):
    buffer = make(lambda pool: pool.x == 3, steps=5, replicas=replicas, count_replays=True)
    buffer.sample(6)
    assert np.ravel(buffer.stats().samples).tolist() == [6] * (replicas or 1)
    for counts in buffer.replay_counts():
        assert counts.tolist() == [0, 0, 0, 6, 0]


def test_every_step_of_a_kept_sequence_counts():
    fields = {"x": Field(), **FLAGS}
    options = {
        "sampler": LaBER(lambda pool: pool.id == 0),
        "transforms": [Sequence(2, overlap=0)],
        "count_replays": True,
    }
    buffer = ReplayBuffer(4, fields, seed=0, **options)
    buffer.extend(x=range(4), terminated=[False] * 4, truncated=[False] * 4)
    buffer.sample(3)
    assert buffer.replay_counts()[0].tolist() == [3, 3, 0, 0]


def test_scores_may_have_a_gradient():
    torch = pytest.importorskip("torch")
    scale = torch.ones(1, requires_grad=True)
    assert 0 not in make(lambda pool: scale * torch.as_tensor(pool.x)).sample(4).x
    assert Sequence(2, overlap=0).priority(torch.ones((1, 2), requires_grad=True), np.ones((1, 2))).tolist() == [1.0]
    oracle = ReplayBuffer(5, {"x": Field()}, sampler=Oracle(lambda ids: scale.double() * torch.as_tensor(ids)))
    oracle.extend(x=range(5))
    assert oracle.sample(1).id.tolist() == [4]
