"""Dispersed prioritized draws: the joint distribution, by enumeration; rounds; and that nothing stays hidden.

False alarms: see `chi2.py`.
"""

from itertools import product

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Dispersed, Field, Prioritized, ReplayBuffer
from tests.replay.guarantees.chi2 import assert_distribution

FIELDS = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
RAW = {"alpha": 1.0, "beta": 0.4}


def make(episodes, sampler=None, capacity=1000, **options):
    """A buffer of episodes of these lengths, ended by termination and truncation in turn."""
    buffer = ReplayBuffer(capacity, FIELDS, sampler=sampler or Dispersed(**RAW), seed=3, **options)
    for number, length in enumerate(episodes):
        last = np.arange(length) == length - 1
        kinds = {"terminated": last & (number % 2 == 0), "truncated": last & (number % 2 == 1)}
        buffer.extend(x=np.full(length, number), **kinds)
    return buffer


def joint_distribution(priority, episode, rows):
    """The chance of every sequence of so many rows: each ∝ priority among the episodes of its round still to give."""
    distribution = np.zeros((len(priority),) * rows)
    for steps in product(range(len(priority)), repeat=rows):
        chance, given = 1.0, set()
        for step in steps:
            free = np.array([e not in given for e in episode])
            if not (priority * free).any():
                given, free = set(), np.ones(len(priority), bool)
            chance *= priority[step] * free[step] / (priority * free).sum()
            given.add(episode[step])
        distribution[steps] = chance
    return distribution


@pytest.mark.parametrize(
    "priority",
    [
        np.array([1.0, 2.0, 4.0, 0.5, 3.0, 1.0]),
        np.array([0.0, 2.0, 0.0, 0.0, 3.0, 1.0]),  # the second episode can give nothing
        np.array([1.0, 1.0, 1e7, 1.0, 1.0, 2.0]),  # rejection alone would not get past the second
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_the_joint_distribution_of_a_batch(rows, priority):
    buffer, episode = make([2, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    buffer.update_priorities(np.arange(6), priority=priority)
    distribution = joint_distribution(priority, episode, rows)
    assert distribution.sum() == pytest.approx(1.0, rel=1e-12)
    drawn = np.stack([buffer.sample(rows).id for _ in range(6000)])
    places = np.ravel_multi_index(tuple(drawn.T), distribution.shape)
    assert_distribution(np.bincount(places, minlength=distribution.size), distribution.ravel())


class TestABatch:
    @pytest.mark.parametrize("num_envs", [None, 1, 4])
    @pytest.mark.parametrize("rows", [5, 23])
    def test_takes_every_episode_once_before_any_twice(self, rows, num_envs):
        """Also where episodes wrap the ring, of several environments, and are partly overwritten."""
        buffer = ReplayBuffer(61, FIELDS, num_envs=num_envs, sampler=Dispersed(), seed=0)
        rng, E = np.random.default_rng(0), num_envs or 1
        episode, number = list(range(E)), E
        held = {}
        for _ in range(300):
            ends, where = rng.random(E) < 0.15, rng.random(E) < (0.7 if E > 1 else 2)
            lead = () if num_envs is None else (E,)
            flags = {"terminated": ends.reshape(lead), "truncated": np.zeros(lead, bool), "where": where.reshape(lead)}
            ids = np.reshape(buffer.add(x=np.reshape(episode, lead), **flags), E)
            for e in np.flatnonzero(where):
                held[int(ids[e])] = episode[e]
                if ends[e]:
                    episode[e], number = number, number + 1
            buffer.update_priorities(ids, rng.exponential(size=E))
            batch = buffer.sample(rows, progress=0.5)
            np.testing.assert_array_equal(batch.x, [held[i] for i in batch.id.tolist()])
            oldest = max(held) - 60
            alive = {held[i] for i in held if i >= oldest}
            counts = np.bincount(list(batch.x), minlength=number)[sorted(alive)]
            assert counts.sum() == rows
            assert counts.max() - counts.min() <= 1

    def test_leaves_every_priority_as_it_was(self):
        buffer = make([50, 1, 300, 2])
        buffer.update_priorities(np.arange(353), priority=np.random.default_rng(0).exponential(size=353) ** 8)
        before = buffer._parts.core.probabilities(np.arange(353), 1, [0.4])
        for rows in (1, 3, 4, 5, 40):
            buffer.sample(rows)
            np.testing.assert_array_equal(buffer._parts.core.probabilities(np.arange(353), 1, [0.4]), before)

    @pytest.mark.parametrize("normalize", ["buffer", "none"])
    def test_states_the_first_rows_chance_and_prioritized_weights(self, normalize):
        buffer, twin = (make([5] * 9, kind(normalize=normalize, **RAW)) for kind in (Dispersed, Prioritized))
        priority = np.random.default_rng(0).exponential(size=45)
        for each in (buffer, twin):
            each.update_priorities(np.arange(45), priority=priority)
        batch = buffer.sample(9)
        np.testing.assert_array_equal(batch.probability, twin.probabilities(batch.id))
        weight = {int(i): w for b in [twin.sample(2000)] for i, w in zip(b.id, b.weight, strict=True)}
        known = [k for k, i in enumerate(batch.id) if int(i) in weight]
        assert len(known) > 4
        np.testing.assert_allclose(batch.weight[known], [weight[int(batch.id[k])] for k in known], rtol=1e-6)

    def test_without_ends_every_environment_is_one_episode(self):
        buffer = ReplayBuffer(40, {"x": Field()}, num_envs=4, sampler=Dispersed(**RAW), seed=0)
        buffer.extend(x=np.zeros((10, 4)))
        for _ in range(20):
            assert sorted(buffer.sample(4).id % 4) == [0, 1, 2, 3]


class TestRefusals:
    def test_the_distribution(self):
        with pytest.raises(ConfigError) as caught:
            make([3]).probabilities([0])
        assert str(caught.value) == (
            "Dispersed has no closed form of its sampling probability: "
            "a row depends on the episodes of the rows before; "
            "batch.probability is a first row's"
        )
