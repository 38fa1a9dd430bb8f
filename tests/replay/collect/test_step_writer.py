"""Steps without next observations become the transitions that an environment would have given."""

from itertools import pairwise

import numpy as np
import pytest

from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError
from replaylab.replay import Field, FrameStack, NStep, ReplayBuffer, Sequence, StepWriter

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
FIELDS = {"obs": Field((2,)), "reward": Field(), "next_obs": Field((2,)), **FLAGS}
NESTED = {"a": (Field((2,)), Field((), np.int64)), "b": Field((3,), np.uint8)}


def transitions(buffer):
    """Return the stored steps, by the environment's number, which `reward` holds."""
    by_env = {}
    ids = np.arange(buffer._parts.core.counts()[1][0] - buffer.size, buffer._parts.core.counts()[1][0])
    stored = buffer.get(ids)
    for k in range(len(ids)):
        row = (*stored["obs"][k], *stored["next_obs"][k], stored["terminated"][k], stored["truncated"][k])
        by_env.setdefault(int(stored["reward"][k]), []).append(tuple(float(value) for value in row))
    return by_env


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_against_the_plain_story(num_envs, next_obs):
    """Random calls for random environments; each environment's story is written down as it happens."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(10_000, FIELDS, num_envs=num_envs, next_obs=next_obs, seed=0)
    writer, expected = StepWriter(buffer), {}
    episodes = [[] for _ in range(num_envs)]
    reward = np.arange(num_envs, dtype=np.float32)

    def close(env, ends):
        for k, (before, after) in enumerate(pairwise(episodes[env])):
            last = k == len(episodes[env]) - 2
            row = (*before, *after, *(ends if last else (False, False)))
            expected.setdefault(env, []).append(tuple(map(float, row)))

    for _ in range(300):
        obs, where = rng.random((num_envs, 2), np.float32), rng.random(num_envs) < 0.7
        if rng.random() < 0.8:
            ids = writer.add(obs=obs, reward=reward, where=where)
            for env in np.flatnonzero(where):
                assert (ids[env] >= 0) == bool(episodes[env])
                episodes[env].append(obs[env])
            assert (ids[~where] == -1).all()
        else:
            terminated, truncated = rng.random((2, num_envs)) < 0.5
            ids = writer.end_episode(obs, terminated=terminated, truncated=truncated, where=where)
            for env in range(num_envs):
                assert (ids[env] >= 0) == bool(where[env] and episodes[env])
                if where[env]:
                    episodes[env].append(obs[env])
                    close(env, (terminated[env], truncated[env] or not terminated[env]))
                    episodes[env].clear()
    for env in range(num_envs):
        close(env, (False, False))
    assert transitions(buffer) == expected


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("num_envs", [None, 3])
def test_axes_and_nested_fields(num_envs, replicas):
    fields = {"obs": NESTED, "action": (Field(),), "next_obs": NESTED, **FLAGS}
    buffer = ReplayBuffer(50, fields, num_envs=num_envs, replicas=replicas, next_obs="derived", seed=0)
    lead = tuple(n for n in (replicas, num_envs) if n is not None)
    writer = StepWriter(buffer)

    def obs(t):
        return {"a": (np.full((*lead, 2), t), np.full(lead, t)), "b": np.full((*lead, 3), t, np.uint8)}

    for t in range(4):
        ids = writer.add(obs=obs(t), action=(np.full(lead, 10.0 * t),))
        assert np.shape(ids) == lead
        assert (np.asarray(ids) == -1).all() == (t == 0)
    ids = writer.end_episode(obs(4), truncated=True)
    stored = buffer.get(ids)
    assert (stored["obs"]["a"][1] == 3).all()
    assert (stored["next_obs"]["b"] == 4).all()
    assert (stored["action"][0] == 30).all()
    assert stored["truncated"].all()
    assert not stored["terminated"].any()
    assert (np.asarray(buffer.size) == 4 * (num_envs or 1)).all()
    assert (np.asarray(writer.end_episode(obs(5))) == -1).all()


def test_transforms_see_whole_episodes():
    transforms = [NStep(2, 1.0), FrameStack(2), Sequence(2, 0, 0)]
    buffer = ReplayBuffer(50, FIELDS, transforms=transforms, seed=0)
    writer = StepWriter(buffer)
    for first in (0, 10):
        for t in range(first, first + 3):
            writer.add(obs=[t, t], reward=t)
        writer.end_episode([first + 3, 0], terminated=True)
    batch = buffer.as_batch([3, 4, 5])
    assert batch.obs[..., 0].tolist() == [[[10, 10], [10, 11]], [[10, 10], [10, 11]], [[11, 12], [0, 0]]]
    assert batch.reward.tolist() == [[21, 23], [21, 23], [12, 0]]
    assert batch.next_obs[2, 0, 1].tolist() == [13, 0]


def test_what_is_refused_changes_nothing():
    buffer = ReplayBuffer(50, FIELDS, seed=0)
    writer = StepWriter(buffer)
    writer.add(obs=[0, 0], reward=0)
    for error, bad in [
        (FieldError, {"obs": [1, 1]}),
        (FieldError, {"obs": [1, 1], "reward": 0, "terminated": True}),
        (ShapeError, {"obs": {"a": 1}, "reward": 0}),
        (ShapeError, {"obs": [1, 1, 1], "reward": 0}),
        (DtypeError, {"obs": [1j, 2], "reward": 0}),
        (ShapeError, {"obs": [1, 1], "reward": 0, "where": [True]}),
    ]:
        with pytest.raises(error):
            writer.add(**bad)
    for error, bad in [(ShapeError, {"obs": [1]}), (DtypeError, {"obs": [1, 1], "terminated": 1.5})]:
        with pytest.raises(error):
            writer.end_episode(**bad)
    assert len(buffer) == 0
    assert writer.add(obs=[1, 1], reward=0) == 0
    assert buffer.get([0])["next_obs"].tolist() == [[1, 1]]


def test_what_was_given_may_be_changed_at_once():
    buffer = ReplayBuffer(50, FIELDS, seed=0)
    writer, obs = StepWriter(buffer), np.zeros(2, np.float32)
    for t in range(3):
        obs[:] = t
        writer.add(obs=obs, reward=t)
    obs[:] = 9
    assert buffer.get([0, 1])["next_obs"].tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    "fields",
    [
        {"x": Field(), **FLAGS},
        {"obs": Field(), **FLAGS},
        {"obs": Field(), "next_obs": Field((2,)), **FLAGS},
        {"obs": Field(), "next_obs": Field(), "terminated": Field((), bool)},
        {"obs": Field(), "next_obs": Field(), "terminated": Field(), "truncated": Field((), bool)},
        {"obs": {"a": Field()}, "next_obs": {"a": Field(), "b": Field()}, **FLAGS},
    ],
)
def test_fields_it_cannot_write(fields):
    with pytest.raises(FieldError, match="StepWriter needs the field"):
        StepWriter(ReplayBuffer(5, fields))


def test_an_autoreset_mode():
    with pytest.raises(ConfigError, match='but the buffer has autoreset="next_step"; make it without'):
        StepWriter(ReplayBuffer(5, FIELDS, autoreset="next_step"))


def test_a_new_writer_begins_new_episodes(tmp_path):
    """The step that the previous writer held back is lost, and so is its link to the next step."""
    for end in (False, True):
        buffer = ReplayBuffer(50, FIELDS, transforms=[NStep(2, 1.0)], seed=0)
        writer = StepWriter(buffer)
        for k in range(2):
            writer.add(obs=[k, k], reward=1)
        buffer.save(tmp_path)
        buffer = ReplayBuffer.load(tmp_path)
        writer = StepWriter(buffer)
        if end:
            assert writer.end_episode(obs=[9, 9], truncated=True) == -1
        writer.add(obs=[50, 50], reward=100)
        assert writer.end_episode(obs=[51, 51], terminated=True) == 1
        assert buffer.as_batch([0, 1]).reward.tolist() == [1.0, 100.0]


def test_an_episode_ends_where_nothing_is_kept_back():
    """Others may have added to it."""
    buffer = ReplayBuffer(50, FIELDS, num_envs=2, transforms=[NStep(2, 1.0)], seed=0)
    writer = StepWriter(buffer)
    obs, no = np.zeros((2, 2)), np.zeros(2, bool)
    buffer.add(obs=obs, reward=[1, 1], next_obs=obs, terminated=no, truncated=no)
    assert writer.end_episode(obs, where=[True, False]).tolist() == [-1, -1]
    writer.add(obs=obs, reward=[10, 10])
    writer.end_episode(obs, terminated=True)
    assert buffer.as_batch([0, 1]).reward.tolist() == [1.0, 11.0]
