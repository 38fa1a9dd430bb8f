"""Whole episodes go in, and come out again as they were."""

import numpy as np
import pytest

from replaylab import ReplayBuffer
from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError
from replaylab.replay import Field, Fifo, FrameStack, NStep, Reservoir, Sequence
from tests.same import same

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
FIELDS = {"obs": Field((2,)), "action": Field((), np.int64), "reward": Field(), "next_obs": Field((2,))} | FLAGS


def episode(steps, start=0, **flags):
    obs = np.arange(start, start + steps + 1, dtype=np.float32)[:, None] * [1.0, -1.0]
    return {"obs": obs.astype(np.float32), "action": np.arange(steps), "reward": np.ones(steps, np.float32), **flags}


def nested(steps, rng):
    return {
        "obs": {"pose": rng.normal(size=(steps + 1, 3)), "rooms": (rng.integers(5, size=steps + 1),) * 2},
        "action": (rng.integers(3, size=steps), rng.normal(size=(steps, 2)).astype(np.float32)),
        "reward": rng.normal(size=steps),
        "log_prob": rng.normal(size=steps).astype(np.float16),
        "terminated": np.arange(steps) == steps - 1,
        "truncated": np.zeros(steps, bool),
    }


@pytest.mark.parametrize("next_obs", ["stored", "derived"])
def test_an_episode_becomes_its_transitions(next_obs):
    buffer = ReplayBuffer(10, FIELDS, next_obs=next_obs, seed=0)
    assert buffer.extend_episode(**episode(3, terminated=True)).tolist() == [0, 1, 2]
    assert buffer.extend_episode(**episode(2, 10, truncated=True)).tolist() == [3, 4]
    steps = buffer.get(range(5))
    assert steps["obs"][:, 0].tolist() == [0, 1, 2, 10, 11]
    assert steps["next_obs"][:, 0].tolist() == [1, 2, 3, 11, 12]
    assert steps["terminated"].tolist() == [False, False, True, False, False]
    assert steps["truncated"].tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("envs", [None, 1])
def test_it_is_apart_from_what_comes_before_and_after(envs):
    """Neither episode has an end that is stored: still no return looks over it."""
    buffer = ReplayBuffer(20, FIELDS, num_envs=envs, transforms=[NStep(5, 1.0)], seed=0)
    step = {name: np.zeros(field.shape, field.dtype) for name, field in FIELDS.items()}
    step = {name: value if envs is None else value[None] for name, value in step.items()}
    buffer.add(**step)
    buffer.extend_episode(**episode(3))
    buffer.add(**step)
    batch = buffer.as_batch(range(5))
    assert batch.n_steps.tolist() == [1, 3, 2, 1, 1]
    assert not batch.terminated.any()


def test_no_episode_is_refused_halfway():
    buffer = ReplayBuffer(20, FIELDS, transforms=[NStep(5, 1.0)], seed=0)
    step = {name: np.zeros(field.shape, field.dtype) for name, field in FIELDS.items()}
    buffer.add(**step)
    wrong = episode(3)
    for change in (
        {"reward": np.ones(4)},
        {"action": np.ones(3)},
        {"obs": wrong["obs"][:, :1]},
        {"terminated": [True]},
    ):
        with pytest.raises((ShapeError, DtypeError)):
            buffer.extend_episode(**wrong | change)
    with pytest.raises(FieldError, match=r"missing `reward` and got unknown `rewards` \(did you mean `reward`\?\)"):
        buffer.extend_episode(obs=wrong["obs"], action=wrong["action"], rewards=wrong["reward"])
    buffer.add(**step)
    assert buffer.as_batch([0]).n_steps.tolist() == [2], "the episode that was under way continues"


def test_an_episode_without_steps_stores_none():
    buffer = ReplayBuffer(20, FIELDS, seed=0)
    assert buffer.extend_episode(**episode(0)).shape == (0,)
    assert len(buffer) == 0


def test_sequences_need_no_next_obs():
    buffer = ReplayBuffer(20, {"obs": Field(), **FLAGS}, transforms=[Sequence(4, overlap=0, burn_in=0)], seed=0)
    buffer.extend_episode(obs=np.arange(4.0), terminated=True)
    assert buffer.as_batch([0]).obs.tolist() == [[0.0, 1.0, 2.0, 0.0]]


def test_episodes_need_no_flags():
    fields = {"obs": Field(), "next_obs": Field()}
    episodes = [{"obs": np.arange(4.0)}, {"obs": np.arange(10.0, 13.0)}]
    buffer = ReplayBuffer.from_episodes(episodes, fields=fields, transforms=[FrameStack(2)], seed=0)
    assert buffer.as_batch([2, 3]).obs.tolist() == [[1.0, 2.0], [10.0, 10.0]]


def test_stacks_of_frames():
    stack = FrameStack(2, padding="repeat", stacked_input=True)
    fields = {"obs": Field((4,), np.uint8), "reward": Field(), "next_obs": Field((4,), np.uint8), **FLAGS}
    buffer = ReplayBuffer(20, fields, transforms=[stack], next_obs="derived", seed=0)
    frames = np.arange(16, dtype=np.uint8).reshape(4, 4)
    stacks = np.stack([frames[[0, 0, 1, 2]], frames], 1)
    buffer.extend_episode(obs=stacks, reward=np.ones(3), truncated=True)
    batch = buffer.as_batch([0, 1, 2])
    np.testing.assert_array_equal(batch.obs, stacks[:-1])
    np.testing.assert_array_equal(batch.next_obs, stacks[1:])


def test_stacks_that_are_refused_leave_the_episode_before_open():
    names = ("obs", "reward", "next_obs")
    fields = {name: Field() for name in names} | FLAGS
    buffer = ReplayBuffer(50, fields, transforms=[FrameStack(2, stacked_input=True)], seed=0)
    ends = {"terminated": False, "truncated": False}
    buffer.add(obs=[0.0, 0.0], next_obs=[0.0, 1.0], reward=1, **ends)
    with pytest.raises(FieldError, match="begins an episode with other frames"):
        buffer.extend_episode(obs=np.array([[5.0, 6.0], [6.0, 7.0]]), reward=[1.0])
    buffer.add(obs=[0.0, 1.0], next_obs=[1.0, 2.0], reward=1, **ends)
    assert buffer.as_batch([1]).obs.tolist() == [[0.0, 1.0]]


def test_only_a_line_of_steps_takes_episodes():
    for options in ({"num_envs": 2}, {"replicas": 2}, {"autoreset": "next_step"}):
        with pytest.raises(ConfigError, match="an episode is one environment's"):
            ReplayBuffer(20, FIELDS, **options).extend_episode(**episode(2))


class TestBuffersOfEpisodes:
    def test_they_hold_what_was_given_bit_for_bit(self):
        rng = np.random.default_rng(0)
        episodes = [nested(steps, rng) for steps in (5, 1, 7)]
        buffer = ReplayBuffer.from_episodes(episodes, seed=0)
        assert (buffer.capacity, len(buffer), buffer.next_obs) == (13, 13, "derived")
        returned = list(buffer.episodes())
        assert len(returned) == 3
        assert all(map(same, returned, episodes))
        again = ReplayBuffer.from_episodes(iter(returned), 13, next_obs="stored")
        assert same(again.get(range(13)), buffer.get(range(13)))

    def test_fields_may_be_declared(self):
        buffer = ReplayBuffer.from_episodes([episode(4) | {"reward": np.ones(4)}], fields=FIELDS)
        assert buffer.fields == FIELDS

    def test_later_episodes_fit_the_first(self):
        with pytest.raises(DtypeError):
            ReplayBuffer.from_episodes([episode(4), episode(4) | {"action": np.zeros(4)}])

    @pytest.mark.parametrize("capacity", [None, 20])
    def test_errors_name_the_episode(self, capacity):
        short = episode(4) | {"obs": episode(4)["obs"][1:]}
        with pytest.raises(ShapeError, match=r"^episode 1 \(.*\): `obs` of an episode must hold 5 .* but got 4;"):
            ReplayBuffer.from_episodes([episode(4), short], capacity, fields=FIELDS)
        with pytest.raises(ShapeError, match=r"^episode 0 \(.*\): field `action` must have shape \(4,\)"):
            ReplayBuffer.from_episodes([episode(4) | {"action": np.zeros(3, int)}], capacity, fields=FIELDS)
        with pytest.raises(FieldError, match=r"^episode 2 "):
            ReplayBuffer.from_episodes([episode(4), episode(4), {"reward": np.ones(4)}], capacity, fields=FIELDS)

    @pytest.mark.parametrize("capacity", [None, 5])
    def test_there_must_be_one(self, capacity):
        with pytest.raises(ConfigError, match="`episodes` must hold at least one"):
            ReplayBuffer.from_episodes([], capacity)
        for wrong in (None, 3, "x", {}, episode(3)):
            with pytest.raises(ConfigError, match="`episodes` must be episodes, each a mapping"):
                ReplayBuffer.from_episodes(wrong, capacity)
        for wrong in ([3], [{}], [{"reward": np.ones(3)}], [{"obs": {}}], [episode(3), {"reward": np.ones(3)}]):
            with pytest.raises(FieldError):
                ReplayBuffer.from_episodes(wrong, capacity)


class TestEpisodesOut:
    def test_of_several_environments_after_a_wrap_around(self):
        """Environment e counts e, e + 10, ...; its episodes have e + 3 steps."""
        buffer = ReplayBuffer(1500, {"obs": Field(), "next_obs": Field(), **FLAGS}, num_envs=3, next_obs="derived")
        count, number = np.zeros(3), np.arange(3)
        for _ in range(2000):
            ended = count % (number + 3) == number + 2
            buffer.add(
                obs=count * 10 + number, next_obs=count * 10 + number + 10, terminated=ended, truncated=~ended & False
            )
            count += 1
        episodes = list(buffer.episodes())
        assert sum(len(piece["terminated"]) for piece in episodes) == 1500
        lines = [[piece for piece in episodes if piece["obs"][0] % 10 == env] for env in range(3)]
        for env, line in enumerate(lines):
            assert {len(piece["terminated"]) for piece in line[1:-1]} == {env + 3}
            assert all(piece["terminated"].tolist() == [False] * (env + 2) + [True] for piece in line[1:-1])
            seen = np.concatenate([piece["obs"] for piece in line[:-1]])
            assert (np.diff(seen)[np.diff(seen) != 0] == 10).all()

    def test_one_that_was_left_ends_there(self):
        buffer = ReplayBuffer(3000, FIELDS, seed=0)
        for start, steps in ((0, 1100), (5000, 900)):
            buffer.extend_episode(**episode(steps, start))
        assert [len(episode["obs"]) for episode in buffer.episodes()] == [1101, 901]

    def test_an_empty_buffer_has_none(self):
        assert list(ReplayBuffer(5, FIELDS).episodes()) == []

    def test_what_has_no_order_is_refused(self):
        with pytest.raises(ConfigError, match="needs steps in the order of time"):
            next(ReplayBuffer(5, FIELDS, retention=Reservoir()).episodes())
        with pytest.raises(ConfigError, match="needs steps in the order of time"):
            next(ReplayBuffer(5, FIELDS, replicas=2, retention=Fifo()).episodes())
        with pytest.raises(FieldError, match="`episodes` needs the fields `obs` and `next_obs`"):
            next(ReplayBuffer(5, {"obs": Field(), **FLAGS}).episodes())


def test_rewards_of_double_precision_become_what_n_steps_take():
    episode = {"obs": np.arange(4.0), "reward": np.array([1.0, 2.0, 4.0]), "terminated": True}
    buffer = ReplayBuffer.from_episodes([episode], transforms=[NStep(3, gamma=1.0)], seed=0)
    assert buffer.fields["reward"] == Field()
    assert buffer.fields["obs"] == Field((), np.float64)
    assert buffer.as_batch([0]).reward.tolist() == [7.0]


class TestOfSeveralEnvironments:
    """Each step belongs to the environment that took it, whatever `add` left out."""

    def make(self, envs=2, capacity=100, fields=FIELDS, **options):
        return ReplayBuffer(capacity, fields, num_envs=envs, seed=0, **options)

    def step(self, t, envs, end):
        """Environment e gives rewards 10·e; nothing else differs."""
        obs = np.zeros((envs, 2))
        ends = {"terminated": np.full(envs, end), "truncated": np.zeros(envs, bool)}
        return {"obs": obs, "action": np.full(envs, t), "reward": np.arange(envs) * 10.0, "next_obs": obs, **ends}

    @pytest.mark.parametrize("transforms", [(), (NStep(2),)], ids=["plain", "with episodes"])
    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_where_steps_were_left_out(self, transforms, next_obs, tmp_path):
        buffer = self.make(transforms=transforms, next_obs=next_obs)
        for t in range(10):
            buffer.add(where=[True, t > 0], **self.step(t, 2, t == 9))
        buffer.save(tmp_path)
        for each in (buffer, ReplayBuffer.load(tmp_path)):
            assert [e["reward"].tolist() for e in each.episodes()] == [[0.0] * 10, [10.0] * 9]
        merged = ReplayBuffer.from_episodes(buffer.episodes(), 50, seed=0)
        assert [e["action"].tolist() for e in merged.episodes()] == [list(range(10)), list(range(1, 10))]

    def test_after_a_wrap_around(self):
        buffer, rng, steps = self.make(3, 20), np.random.default_rng(0), []
        for t in range(60):
            where = rng.random(3) < 0.5
            steps += [(t, env) for env in np.flatnonzero(where)]
            buffer.add(where=where, **self.step(t, 3, False))
        returned = [(t, env) for e in buffer.episodes() for t, env in zip(e["action"], e["reward"] / 10, strict=True)]
        assert returned == sorted(steps[-20:], key=lambda step: step[1])

    def test_that_reset_themselves_in_the_next_step(self):
        """Environment 0 ends after 3 steps, environment 1 after 4; their resets are no steps."""
        buffer = self.make(autoreset="next_step")
        for t in range(12):
            ends = np.array([t % 4 == 2, t % 5 == 3])
            buffer.add(**self.step(t, 2, False) | {"terminated": ends})
        returned = [(e["reward"][0], e["action"].tolist()) for e in buffer.episodes()]
        assert returned == [
            *((0.0, actions) for actions in ([0, 1, 2], [4, 5, 6], [8, 9, 10])),
            *((10.0, actions) for actions in ([0, 1, 2, 3], [5, 6, 7, 8], [10, 11])),
        ]


@pytest.mark.parametrize("empty", [[], np.zeros(0), np.zeros(0, complex), np.zeros(0, object)])
def test_an_empty_chunk_fits_every_dtype(empty):
    fields = {"x": Field(), "n": Field((), np.int64), "f": Field((), bool)}
    buffer = ReplayBuffer(4, fields, seed=0)
    assert buffer.extend(**dict.fromkeys(fields, empty)).shape == (0,)
    assert len(buffer) == 0
