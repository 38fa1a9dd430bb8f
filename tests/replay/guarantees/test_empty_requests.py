"""Nothing asked is nothing answered: empty ids and stretches of no steps, whatever draws and transforms."""

from itertools import combinations

import numpy as np
import pytest

from replaylab.replay import Field, FrameStack, Hindsight, NStep, ReplayBuffer, Reservoir, Sequence
from tests.given import priorities_or_errors
from tests.oracle import flatten
from tests.replay.buffers import transition
from tests.replay.guarantees.test_conformance import EVERY, kind_of

GOALS = {"achieved_goal": Field((2,)), "desired_goal": Field((2,)), "camera": Field((3,))}
FIELDS = transition(GOALS, action=Field((), np.int64))
TRANSFORMS = (
    NStep(3),
    FrameStack(2, ("obs.camera",)),
    Hindsight(lambda achieved, desired, info: np.ones(len(achieved)), lambda *a: np.zeros(len(a[0]), bool)),
    Sequence(4, 2, 1, state=("action",)),
)
COMBINATIONS = [list(some) for n in range(5) for some in combinations(TRANSFORMS, n)]


def filled(steps, replicas=None, **options):
    buffer = ReplayBuffer(20, FIELDS, replicas=replicas, seed=0, **options)
    lead = (steps,) if replicas is None else (replicas, steps)
    buffer.extend(**zeros(FIELDS, lead))
    return buffer


def zeros(tree, lead):
    if isinstance(tree, dict):
        return {name: zeros(child, lead) for name, child in tree.items()}
    return np.zeros((*lead, *tree.shape), tree.dtype)


def check(buffer):
    """Every call that takes ids or steps, with none."""
    lead = () if buffer.replicas is None else (buffer.replicas,)
    size = np.copy(buffer.size)
    for empty in ([], np.zeros(0), ()) if buffer.replicas is None else (np.zeros((buffer.replicas, 0)),):
        assert {column.shape[: len(lead) + 1] for column in flatten(buffer.get(empty)).values()} == {(*lead, 0)}
        batch = buffer.as_batch(empty)
        assert {column.shape[: len(lead) + 1] for column in flatten(dict(batch)).values()} == {(*lead, 0)}
        assert buffer.update_priorities(empty, empty) == 0
        assert buffer.update_priorities(empty, **priorities_or_errors(buffer.sampler, empty)) == 0
        if buffer.sampler.has_closed_form:
            assert buffer.probabilities(empty, batch_size=3, progress=0.5).shape == (*lead, 0)
    assert buffer.extend(**zeros(FIELDS, (*lead, 0))).shape == (*lead, 0)
    nowhere = False if buffer.replicas is None else np.zeros(lead, bool)
    assert (np.asarray(buffer.add(**zeros(FIELDS, lead), where=nowhere)) == -1).all()
    buffer.end_episode(nowhere)
    if buffer.sampler.has_closed_form:
        buffer.stats()
    np.testing.assert_array_equal(buffer.size, size)


@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("steps", [0, 7, 33])
def test_every_transform(steps, next_obs, replicas):
    for transforms in COMBINATIONS:
        check(filled(steps, replicas, transforms=transforms, next_obs=next_obs))


@pytest.mark.parametrize("replicas", [None, 3])
@pytest.mark.parametrize("sampler", EVERY, ids=kind_of)
def test_every_sampler(sampler, replicas):
    for transforms in ([], [Sequence(4, 2, 1)])[: 1 + sampler.draws_sequences]:
        for steps in (0, 7):
            check(filled(steps, replicas, sampler=sampler, transforms=transforms))


def test_a_reservoir():
    for steps in (0, 33):
        check(filled(steps, retention=Reservoir()))
