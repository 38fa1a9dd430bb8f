"""Several processes' steps in one storage: whose each is, and epochs that they overtake."""

from threading import Event, Thread

import numpy as np
import pytest

from replaylab.replay import Field, MemoryMap, NStep, ReplayBuffer, ShuffledEpochs, Uniform
from tests.replay.storage.storage_worlds import NEEDS_LINUX, small_headroom

pytestmark = NEEDS_LINUX
FIELDS = {name: Field() for name in ("obs", "reward", "next_obs")} | {
    name: Field((), np.bool_) for name in ("terminated", "truncated")
}


def step(t, start, reward, *, ends):
    return {"obs": start + t, "next_obs": start + t + 1, "reward": reward, "terminated": ends, "truncated": False}


def test_episodes_are_those_of_one_process_each(tmp_path):
    first = ReplayBuffer(20, FIELDS, storage=MemoryMap(tmp_path / "rows"), transforms=[NStep(3, 1.0)])
    second = first.handle().open()
    for t in range(3):
        first.add(**step(t, 10, 1, ends=t == 2))
        second.add(**step(t, 20, 2, ends=t == 2))
    second.add(**step(0, 5, 3, ends=False))
    for buffer in (first, second):
        episodes = list(buffer.episodes())
        assert [episode["obs"].tolist() for episode in episodes] == [[10, 11, 12, 13], [20, 21, 22, 23], [5, 6]]
        assert [episode["reward"].tolist() for episode in episodes] == [[1, 1, 1], [2, 2, 2], [3]]
    assert first.as_batch(np.arange(6)).reward.tolist() == [3, 6, 2, 4, 1, 2]


def test_constant_observations_do_not_join_processes(tmp_path):
    first = ReplayBuffer(20, FIELDS, storage=MemoryMap(tmp_path / "rows"))
    second = first.handle().open()
    still = {"obs": 0.0, "next_obs": 0.0, "truncated": False}
    for t in range(3):
        first.add(**still, reward=1, terminated=t == 2)
        second.add(**still, reward=2, terminated=t == 2)
    assert [episode["reward"].tolist() for episode in first.episodes()] == [[1, 1, 1], [2, 2, 2]]


@pytest.mark.parametrize("autoreset", [None, "next_step"])
def test_episodes_of_environments_in_several_processes(tmp_path, autoreset):
    options = {"num_envs": 2, "autoreset": autoreset, "storage": MemoryMap(tmp_path / "rows")}
    first = ReplayBuffer(40, FIELDS, **options)
    second = first.handle().open()
    for t in range(4):
        for buffer, start in ((first, 100), (second, 200)):
            obs = np.array([start + t, start + 50 + t], np.float32)
            ended = np.array([t == 1, False])
            buffer.add(obs=obs, next_obs=obs + 1, reward=obs, terminated=ended, truncated=[False] * 2)
    episodes = sorted(episode["obs"].tolist() for episode in first.episodes())
    rest = [102, 103, 104] if autoreset is None else [103, 104]  # a step that only resets is none
    lines = [[100, 101, 102], rest, [150, 151, 152, 153, 154]]
    assert episodes == sorted([*lines, *([number + 100 for number in line] for line in lines)])


def test_an_epoch_loses_nothing_where_a_batch_is_drawn_again(tmp_path):
    """Three steps come while each batch is read, and there is room for one: it must be drawn again."""
    capacity, length, batch = 40, 200_000, 30
    storage = MemoryMap(tmp_path / "rows", writers=2)
    with small_headroom(1):
        buffer = ReplayBuffer(capacity, {"x": Field((length,))}, storage=storage, sampler=ShuffledEpochs(), seed=0)
    actor = buffer.handle().open(sampler=Uniform(), seed=1)
    actor.extend(x=np.zeros((capacity, length), np.float32))
    go, done, rows = Event(), Event(), np.zeros((3, length), np.float32)
    over = False

    def write():
        while not over:
            if go.wait(0.2):
                go.clear()
                actor.extend(x=rows)
                done.set()

    thread = Thread(target=write)
    thread.start()
    try:
        crossed = 0
        while crossed < 120:
            (ids,) = buffer.stored_ids()
            due = ids[buffer.probabilities(ids, batch_size=1) > 0]  # of the epoch under way, or all
            if len(due) == capacity or len(due) >= batch:
                buffer.sample(10)
                continue
            crossed += 1
            done.clear()
            go.set()
            drawn = buffer.sample(batch)
            done.wait()
            assert np.isin(due[due >= buffer.next_id - capacity], drawn.id).all()
    finally:
        over = True
        thread.join()
