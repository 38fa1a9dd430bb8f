"""A loaded buffer continues the episodes that were under way, ends them, or asks which."""

import copy
import pickle

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay
from replaylab.errors import ConfigError
from tests.replay.buffers import Seeing, seen, transition

FIELDS = transition()
BOTH = "continue_episodes=True .* continue_episodes=False"


N_STEP = (replay.NStep(3, 1.0),)


def make(transforms=N_STEP, capacity=50, **options):
    return ReplayBuffer(capacity, options.pop("fields", FIELDS), transforms=transforms, seed=0, **options)


def add(buffer, reward, steps=5, start=0, where=None, **ends):
    """Add steps of one episode, all of this reward."""
    for t in range(start, start + steps):
        step = {"obs": t, "reward": reward, "next_obs": t + 1, "terminated": False, "truncated": False} | ends
        shape = () if buffer.num_envs is None else buffer.num_envs
        options = {} if where is None else {"where": where}
        buffer.add(**{name: np.full(shape, value) for name, value in step.items() if name in buffer.fields}, **options)


def saved(folder, **options):
    buffer = make(**options)
    add(buffer, 1)
    buffer.save(folder)
    return buffer


def test_a_new_episode_is_apart(tmp_path):
    """The loop of the report: five steps, a restart, five steps of another episode."""
    saved(tmp_path)
    buffer = ReplayBuffer.load(tmp_path, continue_episodes=False)
    add(buffer, 100)
    batch = buffer.as_batch([3, 4])
    assert batch.reward.tolist() == [2.0, 1.0]
    assert batch.truncated.tolist() == [True, True]
    assert batch.discount.tolist() == [1.0, 1.0]
    assert [len(episode["reward"]) for episode in buffer.episodes()] == [5, 5]


def test_or_the_same_one(tmp_path):
    saved(tmp_path)
    buffer = ReplayBuffer.load(tmp_path, continue_episodes=True)
    add(buffer, 100, start=5)
    batch = buffer.as_batch([3, 4])
    assert batch.reward.tolist() == [102.0, 201.0]
    assert batch.truncated.tolist() == [False, False]
    assert [len(episode["reward"]) for episode in buffer.episodes()] == [10]


@pytest.mark.parametrize("call", ["add", "extend", "where"])
def test_or_it_asks(call, tmp_path):
    saved(tmp_path)
    buffer = ReplayBuffer.load(tmp_path)
    assert len(buffer.sample(4).id) == 4
    step = {"obs": 0.0, "reward": 1.0, "next_obs": 1.0, "terminated": False, "truncated": False}
    calls = {
        "add": lambda buffer: buffer.add(**step),
        "extend": lambda buffer: buffer.extend(**{name: [value] for name, value in step.items()}),
        "where": lambda buffer: buffer.add(**step, where=True),
    }
    for _ in range(2):
        with pytest.raises(ConfigError, match=BOTH):
            calls[call](buffer)
        assert len(buffer) == 5
    buffer.end_episode()  # which says it, too
    buffer.add(**step)
    assert buffer.as_batch([3]).reward.tolist() == [2.0]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_it_asks_nothing_where_no_episode_is_open(end, tmp_path):
    buffer = make()
    buffer.save(tmp_path / "empty")
    add(ReplayBuffer.load(tmp_path / "empty"), 1)
    add(buffer, 1, 1, **{end: True})
    buffer.save(tmp_path)
    add(ReplayBuffer.load(tmp_path), 1)


def test_it_asks_nothing_where_there_are_no_episodes(tmp_path):
    for number, options in enumerate(({"fields": {"obs": Field()}}, {"retention": replay.Reservoir()})):
        saved(tmp_path / str(number), transforms=(), **options)
        add(ReplayBuffer.load(tmp_path / str(number)), 1)


def test_without_transforms_the_last_step_is_truncated_too(tmp_path):
    saved(tmp_path, transforms=())
    with pytest.raises(ConfigError, match=BOTH):
        add(ReplayBuffer.load(tmp_path), 1)
    buffer = ReplayBuffer.load(tmp_path, continue_episodes=False)
    assert buffer.get(range(5))["truncated"].tolist() == [False] * 4 + [True]
    add(buffer, 2, start=5)
    assert [len(episode["reward"]) for episode in buffer.episodes()] == [5, 5]


def test_of_each_environment_its_own_last_step(tmp_path):
    for number, transforms in enumerate(((), (replay.NStep(2),))):
        buffer = make(transforms, num_envs=3)
        add(buffer, 1, 2)
        add(buffer, 1, 1, where=[True, False, False], terminated=True)
        add(buffer, 1, 1, where=[False, True, False])
        buffer.save(tmp_path / str(number))
        cut = ReplayBuffer.load(tmp_path / str(number), continue_episodes=False)
        assert np.flatnonzero(cut.get(range(8))["truncated"]).tolist() == [5, 7]


def test_of_each_replica(tmp_path):
    buffer = make(replicas=2, capacity=4)
    step = {name: np.zeros((2, 6)) for name in ("obs", "reward", "next_obs")}
    flags = np.zeros((2, 6), bool)
    flags[0, -1] = True
    buffer.extend(**step, terminated=flags, truncated=~flags & False)
    buffer.save(tmp_path)
    cut = ReplayBuffer.load(tmp_path, continue_episodes=False)
    assert cut.get([[2, 3, 4, 5]] * 2)["truncated"].tolist() == [[False] * 4, [False] * 3 + [True]]


def test_an_episode_whose_steps_are_gone(tmp_path):
    """Environment 0 stands still, while environment 1 fills the buffer."""
    buffer = make(num_envs=2, capacity=4)
    add(buffer, 1, 1)
    add(buffer, 1, 9, where=[False, True])
    buffer.save(tmp_path)
    cut = ReplayBuffer.load(tmp_path, continue_episodes=False)
    assert cut.get(cut.stored_ids()[0])["truncated"].tolist() == [False] * 3 + [True]


def test_saving_again_writes_the_row_that_was_changed(tmp_path):
    saved(tmp_path)
    ReplayBuffer.load(tmp_path, continue_episodes=False).save(tmp_path)
    buffer = ReplayBuffer.load(tmp_path)
    assert buffer.get([4])["truncated"].tolist() == [True]
    add(buffer, 100)
    assert buffer.as_batch([4]).reward.tolist() == [1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
def test_a_flag_of_any_dtype(dtype, tmp_path):
    fields = {"obs": Field(), "truncated": Field((), dtype)}
    saved(tmp_path, transforms=(), fields=fields)
    assert ReplayBuffer.load(tmp_path, continue_episodes=False).get(range(5))["truncated"].tolist() == [0, 0, 0, 0, 1]


def test_a_due_reset_is_no_step_of_a_reset_environment(tmp_path):
    buffer = make(num_envs=1, autoreset="next_step")
    add(buffer, 1, 3)
    add(buffer, 1, 1, 3, terminated=True)
    buffer.save(tmp_path)
    with pytest.raises(ConfigError, match=BOTH):
        add(ReplayBuffer.load(tmp_path), 2, 1)
    for continues, stored in ((True, 4), (False, 5)):
        loaded = ReplayBuffer.load(tmp_path, continue_episodes=continues)
        add(loaded, 2, 1)
        assert len(loaded) == stored


def test_samplers_in_python_see_the_end_too(tmp_path):
    saved(tmp_path, transforms=(), sampler=Seeing())
    for continues, expected in ((True, [0, 1, 2, 3, 4, 5, 6]), (False, [0, 1, 2, 3, 4, 0, 1])):
        buffer = ReplayBuffer.load(tmp_path, sampler=Seeing(), continue_episodes=continues)
        add(buffer, 1, 2, 5)
        seen.clear()
        buffer.sample(1)
        assert seen[0][1] == expected


def test_samplers_by_episodes_without_rows(tmp_path):
    for number, sampler in enumerate((replay.EpisodeEnds(), replay.Prioritized(beta=0.4))):
        priorities = replay.Priorities(20, sampler=sampler, seed=0)
        priorities.extend(3)
        priorities.save(tmp_path / str(number))
    with pytest.raises(ConfigError, match=BOTH):
        replay.Priorities.load(tmp_path / "0").add()
    assert replay.Priorities.load(tmp_path / "0", continue_episodes=False).add() == 3
    assert replay.Priorities.load(tmp_path / "1").add() == 3


def test_restoring_in_place(tmp_path):
    buffer = saved(tmp_path)
    adding = buffer.add
    buffer.restore(tmp_path)
    with pytest.raises(ConfigError, match=BOTH):
        adding(obs=0, reward=0, next_obs=0, terminated=False, truncated=False)
    buffer.restore(tmp_path, continue_episodes=True)
    add(buffer, 100, start=5)
    assert buffer.as_batch([4]).reward.tolist() == [201.0]
    buffer.restore(tmp_path, continue_episodes=False)
    add(buffer, 100)
    assert buffer.as_batch([4]).reward.tolist() == [1.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))])
def test_copies_continue(copied, tmp_path):
    twin = copied(saved(tmp_path))
    add(twin, 100, start=5)
    assert twin.as_batch([4]).reward.tolist() == [201.0]
    with pytest.raises(ConfigError, match=BOTH):  # of one that was not decided
        add(copied(ReplayBuffer.load(tmp_path)), 100)


def test_parts_continue(tmp_path):
    buffer = make(replicas=2, transforms=())
    zero = np.zeros(2)
    step = dict.fromkeys(("obs", "reward", "next_obs"), zero) | {"terminated": zero > 0, "truncated": zero > 0}
    buffer.add(**step)
    buffer.part([1]).add(**{name: value[:1] for name, value in step.items()})
    buffer.save(tmp_path)
    with pytest.raises(ConfigError, match=BOTH):
        ReplayBuffer.load(tmp_path).part([1]).add(**{name: value[:1] for name, value in step.items()})


def test_rows_in_a_storage_stay_as_they_are(tmp_path):
    """Steps of a process that opens them begin an episode there in any case."""
    buffer = make(storage=replay.MemoryMap(tmp_path / "rows"))
    add(buffer, 1)
    buffer.save(tmp_path / "saved")
    buffer.close()
    for continues in (None, False, True):
        loaded = ReplayBuffer.load(tmp_path / "saved", continue_episodes=continues)
        add(loaded, 100, 2)
        assert loaded.as_batch([3, 4]).reward.tolist() == [2.0, 1.0]
        assert not loaded.get(range(5))["truncated"].any()
        loaded.close()


@pytest.mark.parametrize("bad", ["yes", 2, 0.5, "False"])
def test_it_is_a_flag(bad, tmp_path):
    saved(tmp_path)
    with pytest.raises(ConfigError, match="`continue_episodes` must be"):
        ReplayBuffer.load(tmp_path, continue_episodes=bad)
