"""Some replicas of a buffer continue as they would have in the whole."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay
from replaylab.arguments import shown
from replaylab.errors import ConfigError
from tests.replay.buffers import transition
from tests.replay.guarantees.test_conformance import Fresh

FIELDS = transition(Field((2,)))


def columns_of(steps, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(steps):
        values = {"obs": rng.normal(size=(4, 2)), "next_obs": rng.normal(size=(4, 2)), "reward": rng.normal(size=4)}
        flags = {"terminated": rng.random(4) < 0.1, "truncated": rng.random(4) < 0.1}
        rows.append((values, flags))
    return rows


def add(buffer, steps, rows):
    for values, flags in steps:
        buffer.add(**{name: value[rows] for name, value in (values | flags).items()})


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"sampler": replay.Uniform()}, [2]),
        ({"sampler": replay.Prioritized(beta=0.5)}, [True, False, True, True]),
        ({"sampler": replay.RankBased(beta=0.5), "transforms": [replay.NStep(3)]}, [3, 0]),
        ({"sampler": replay.ShuffledEpochs()}, [0, 1, 3]),
        ({"sampler": Fresh()}, [1, 2]),
        ({"sampler": replay.LaBER(lambda batch: abs(batch.reward))}, [1, 2]),
    ],
)
def test_some_replicas_go_on_as_in_the_whole(options, rows):
    buffer = ReplayBuffer(17, FIELDS, replicas=4, seed=[1, 2, 3, 4], **options)
    add(buffer, columns_of(30, 0), slice(None))
    buffer.sample(5)
    part = buffer.part(rows)
    rows = np.arange(4)[np.asarray(rows)]
    for round_ in range(4):
        more = columns_of(3, 1 + round_)
        add(buffer, more, slice(None))
        add(part, more, rows)
        left, right = buffer.sample(6), part.sample(6)
        for name in left:
            np.testing.assert_array_equal(left[name][rows], right[name])
        error = np.random.default_rng(round_).normal(size=(4, 6))
        buffer.update_priorities(left.id, error)
        part.update_priorities(right.id, error[rows])


def test_a_part_is_a_separate_buffer():
    buffer = ReplayBuffer(17, FIELDS, replicas=4, seed=0)
    steps = columns_of(5, 0)
    add(buffer, steps, slice(None))
    part = buffer.part([1])
    add(part, steps, [1])
    assert (buffer.size.tolist(), part.size.tolist()) == ([5] * 4, [10])


def test_a_part_needs_replicas():
    with pytest.raises(ConfigError, match="`part` needs replicas"):
        ReplayBuffer(17, FIELDS).part([0])


@pytest.mark.parametrize(
    "bad", [[5], [-1], [0, 2], "x", [], 0, 1.0, [0.5], None, [False, False], [True], [[0]], {0}, 2**70], ids=repr
)
def test_replicas_that_are_not_there(bad):
    with pytest.raises(ConfigError) as caught:
        ReplayBuffer(17, FIELDS, replicas=2).part(bad)
    assert str(caught.value) == (
        f"`replicas` must be numbers from 0 to 1, at least one, or 2 booleans, but got {shown(bad)}"
    )
