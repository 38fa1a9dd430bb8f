"""Copies and pickles of a buffer: one in memory goes whole, one on rows that others see as a handle."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.replay import Field, Hindsight, LaBER, MemoryMap, NStep, Oracle, Prioritized, ReplayBuffer, Uniform
from tests.replay.buffers import transition
from tests.replay.storage.storage_worlds import NEEDS_LINUX

FIELDS = transition({"camera": Field((100,), np.uint8, compressed=True), "pose": Field((2,))})


def score(ids):
    return -np.asarray(ids)


def rate(pool):
    return pool.reward + 1.0


def pickled(buffer):
    return pickle.loads(pickle.dumps(buffer))


def filled(sampler, steps=37, **options):
    buffer = ReplayBuffer(20, FIELDS, num_envs=2, sampler=sampler, seed=3, **options)
    rng = np.random.default_rng(0)
    for step in range(steps):
        obs, after = ({"camera": rng.integers(0, 255, (2, 100), np.uint8), "pose": rng.random((2, 2))} for _ in "ab")
        ends = np.array([step % 5 == 4, step % 7 == 6])
        buffer.add(obs=obs, reward=rng.random(2), next_obs=after, terminated=ends, truncated=~ends & ends[::-1])
    return buffer


def drawn(buffer):
    """Draw twice with feedback in between, and add; return all that came."""
    first = buffer.sample(8, progress=0.5)
    buffer.update_priorities(first.id, first.reward)
    zeros = {"camera": np.zeros((2, 100), np.uint8), "pose": np.zeros((2, 2))}
    flags = np.zeros(2, bool)
    ids = buffer.add(obs=zeros, reward=[0, 0], next_obs=zeros, terminated=flags, truncated=flags)
    second = buffer.sample(8, progress=0.5)
    columns = [first.id, first.weight, first.obs["camera"], first.next_obs["pose"], second.id, second.weight, ids]
    return [column.tolist() for column in columns]


@pytest.mark.parametrize("make", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (Prioritized(), {"transforms": [NStep(3)], "next_obs": "derived"}),
        (Uniform(replace=False), {"count_replays": True}),
        (Oracle(score), {}),
        (LaBER(rate), {}),
    ],
    ids=["prioritized", "distinct", "own", "pool"],
)
def test_a_copy_in_memory_continues_as_the_original_would(make, sampler, options):
    buffer, same = (filled(sampler, **options) for _ in range(2))
    other = make(buffer)
    assert drawn(other) == drawn(same) == drawn(buffer)
    assert buffer._parts.saved == other._parts.saved == {}  # nothing points to the folders that were made on the way
    buffer.clear()
    assert len(other) == 20


def reached(achieved, desired, info):
    return (achieved == desired).all(-1)


def test_goals_take_their_functions_along():
    obs = {"observation": Field((2,)), "achieved_goal": Field((1,)), "desired_goal": Field((1,))}
    fields = {"obs": obs, "reward": Field(), "next_obs": obs, "terminated": Field((), bool)}
    buffer = ReplayBuffer(10, fields, transforms=[Hindsight(reached, reached)], seed=0)
    row = {"observation": [0, 0], "achieved_goal": [1], "desired_goal": [2]}
    buffer.add(obs=row, reward=0, next_obs=row, terminated=False)
    other = pickled(buffer)
    assert other.sample(9).reward.tolist() == buffer.sample(9).reward.tolist()


def send(buffer, pipe):
    buffer.reseed(1)
    pipe.send(buffer.sample(4).x.tolist())


def test_another_process_gets_a_copy():
    buffer = ReplayBuffer(10, {"x": Field()}, seed=1)
    buffer.extend(x=[1.0, 2.0, 3.0])
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=send, args=(buffer, child_end))
    process.start()
    assert parent_end.recv() == buffer.sample(4).x.tolist()
    process.join()


def test_a_shallow_copy_is_refused():
    with pytest.raises(ConfigError, match=r"cannot be copied in part.*copy\.deepcopy makes another"):
        copy.copy(ReplayBuffer(10, {"x": Field()}))


@NEEDS_LINUX
@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy])
def test_copies_of_rows_in_a_file_are_refused(function, tmp_path):
    buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
    with pytest.raises(ConfigError, match=r"handle\(\)\.open\(\) makes"):
        function(buffer)


class Noted(ReplayBuffer):
    """A buffer with its own attribute."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.note = "none"


def noted():
    buffer = Noted(10, {"x": Field()}, seed=0)
    buffer.note, buffer.mine = "some", [1]
    buffer.extend(x=[1.0, 2.0])
    return buffer


def test_methods_taken_before_a_restore_add_to_what_was_restored(tmp_path):
    buffer = noted()
    add, extend = buffer.add, buffer.extend
    buffer.save(tmp_path)
    for _ in range(2):
        buffer.add(x=9.0)
        buffer.restore(tmp_path)
    assert (add(x=3.0), extend(x=[4.0, 5.0]).tolist()) == (2, [3, 4])
    assert buffer.get(range(5))["x"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def restored(buffer, folder):
    buffer.save(folder)
    buffer.restore(folder)
    return buffer


@pytest.mark.parametrize(
    "copied", [restored, lambda it, _: copy.deepcopy(it), lambda it, _: pickle.loads(pickle.dumps(it))]
)
def test_attributes_that_are_not_the_buffers_stay(copied, tmp_path):
    before = noted()
    after = copied(before, tmp_path)
    assert (after.note, after.mine, len(after)) == ("some", [1], 2)
    assert after is before or after.mine is not before.mine
