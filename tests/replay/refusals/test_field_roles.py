"""Every pair of transforms with every field in every role: refused by name, or every array as large as what is written.

What is written past an array's end is seen by the address sanitizer (`make sanitize`); that a batch into memory of the
caller's is the same as one into new arrays is seen here.
"""

from itertools import product

import numpy as np
import pytest

from replaylab.errors import FieldError
from replaylab.replay import Field, FrameStack, Hindsight, NStep, ReplayBuffer, Sequence
from tests.oracle import flatten
from tests.replay.buffers import transition

OBS = {"achieved_goal": Field((3,)), "desired_goal": Field((3,)), "camera": Field((3,))}
FIELDS = transition(OBS, action=Field((3,)), memory=(Field((3,)), Field((2,), np.float64)))
ROLES = (
    *("obs", "next_obs", "obs.achieved_goal", "obs.desired_goal", "obs.camera", "next_obs.camera"),
    *("next_obs.achieved_goal", "next_obs.desired_goal", "action", "reward", "terminated", "memory", "memory.1"),
)


def hindsight(achieved="achieved_goal", desired="desired_goal"):
    return Hindsight(
        lambda *a: np.ones(len(a[0])), lambda *a: np.zeros(len(a[0]), bool), "future", 9.0, achieved, desired
    )


def filled(transforms, next_obs, num_envs=None):
    buffer = ReplayBuffer(50, FIELDS, transforms=transforms, next_obs=next_obs, num_envs=num_envs, seed=0)
    lead = (70,) if num_envs is None else (35, num_envs)
    rng = np.random.default_rng(0)

    def values(tree):
        if isinstance(tree, dict):
            return {name: values(child) for name, child in tree.items()}
        if isinstance(tree, tuple):
            return tuple(map(values, tree))
        return (rng.random((*lead, *tree.shape)) < 0.2).astype(tree.dtype)

    buffer.extend(**{name: values(tree) for name, tree in FIELDS.items()})
    return buffer


def exercise(transforms, next_obs, num_envs=None):
    """Draw, by every way there is; say whether the buffer was refused."""
    try:
        buffer = filled(transforms, next_obs, num_envs)
    except FieldError:
        return True
    out = buffer.sample(6)
    expected = flatten(dict(buffer.sample(6)))
    again = filled(transforms, next_obs, num_envs)
    again.sample(6)
    reused = flatten(dict(again.sample(6, out=out)))
    assert expected.keys() == reused.keys()
    for path, column in expected.items():
        np.testing.assert_array_equal(column, reused[path], err_msg=str(path))
    drawn = buffer.as_batch(out.id)
    assert all(len(column) == 6 for column in flatten(dict(drawn)).values())
    return False


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("state", ROLES)
def test_states_beside_every_other_transform(state, next_obs):
    others = ([], [NStep(3)], [hindsight()], [NStep(3), hindsight()], [hindsight("achieved_goal", "achieved_goal")])
    stacks = ([], [FrameStack(2, ("action",))], [FrameStack(2, ("obs.camera",))])
    for other, stack in product(others, stacks):
        for num_envs in (None, 2):
            refused = exercise([Sequence(4, 2, 1, state=(state,)), *other, *stack], next_obs, num_envs)
            stacked = {"action": ["action"], "obs.camera": ["obs", "obs.camera"]}
            clash = bool(stack) and state in stacked[stack[0].fields[0]]
            goals = [transform.desired for transform in other if isinstance(transform, Hindsight)]
            goal = bool(goals) and ("desired" in state or state in ("obs", f"obs.{goals[0]}"))
            outcome = state.split(".")[0] in ("next_obs", "reward", "terminated")
            assert refused == (clash or goal or outcome)


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("stacked", ROLES)
def test_stacks_beside_every_other_transform(stacked, next_obs):
    others = ([], [NStep(3)], [hindsight()], [NStep(3), hindsight()])
    for other, sequence in product(others, ([], [Sequence(4, 2, 1)])):
        exercise([FrameStack(3, (stacked,)), *other, *sequence], next_obs)


@pytest.mark.parametrize("state", ["obs", "obs.desired_goal"])
def test_a_goal_is_no_state(state):
    with pytest.raises(FieldError) as caught:
        filled([Sequence(4, 2, 1, state=(state,)), hindsight()], "stored")
    assert str(caught.value) == (
        "`obs.desired_goal` cannot be a `state` of Sequence, of which a row has one, and a goal of Hindsight, of which "
        "every step has one; leave it out of `state`, naming what is inside a nested field one by one"
    )
