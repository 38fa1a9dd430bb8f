"""Guarantee 4: autoreset is declared, not guessed: true final observations, no bogus transition, in every mode."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from replaylab.errors import DtypeError, FieldError, ReplayError, ShapeError
from replaylab.replay import Field, ReplayBuffer
from tests.oracle import flatten, map_leaves
from tests.replay.buffers import FLAGS
from tests.replay.collect.scripted_env import MODES, OBSERVATIONS, SCRIPTS, make_vector


def play(vector, buffer, steps, lead=None):
    """Step a vector environment into a buffer, as a user would; `lead` is the shape (R, E) if not (envs,)."""
    mode = vector.metadata["autoreset_mode"]
    rng = np.random.default_rng(0)

    def shaped(array):
        return array if lead is None else array.reshape(lead + array.shape[1:])

    obs, _ = vector.reset(seed=0)
    for _ in range(steps):
        action = rng.integers(0, vector.single_action_space.n, vector.num_envs)
        next_obs, reward, terminated, truncated, info = vector.step(action)
        step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        step |= {"terminated": terminated, "truncated": truncated}
        final = {"final_obs": shaped(info["final_obs"])} if "final_obs" in info else {}
        buffer.add(**map_leaves(shaped, step), **final)
        obs, ended = next_obs, terminated | truncated
        if mode == AutoresetMode.DISABLED and ended.any():
            obs, _ = vector.reset(options={"reset_mask": ended})


def stored_by_env(buffer, names):
    """Stored transitions of each environment in the order of their ids, as tuples like those of the log."""
    columns = {
        name: buffer.columns[name] for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    }
    lead = buffer.size if buffer.replicas is not None else [buffer.size]
    rows_of_env = {name: [] for name in names}
    for r, size in enumerate(np.asarray(lead).ravel()):
        for slot in range(size):
            at = slot if buffer.replicas is None else (r, slot)
            row = tuple(map_leaves(lambda column, at=at: column[at], columns[name]) for name in columns)
            rows_of_env[env_name(row[0])].append(row)
    return rows_of_env


def env_name(obs):
    if isinstance(obs, dict):
        return int(obs["where"])
    if isinstance(obs, tuple):
        return int(obs[1][0])
    return int(obs[0]) if np.ndim(obs) else int(obs) // 10**6


def assert_same_transitions(rows, log):
    assert len(rows) == len(log)
    for parts, true_parts in zip(zip(*rows, strict=True), zip(*log, strict=True), strict=True):
        parts, true_parts = list(map(flatten, parts)), list(map(flatten, true_parts))
        assert list(map(dict.keys, parts)) == list(map(dict.keys, true_parts))
        for path in parts[0]:
            np.testing.assert_array_equal([part[path] for part in parts], [part[path] for part in true_parts])


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("mode", MODES)
class TestTheTruthIsStored:
    def check(self, vector, buffer, steps, lead=None):
        play(vector, buffer, steps, lead)
        rows_of_env = stored_by_env(buffer, range(vector.num_envs))
        for env in vector.envs:
            assert_same_transitions(rows_of_env[env.unwrapped.name], env.unwrapped.log)
        ends = sum(row[4] or row[5] for rows in rows_of_env.values() for row in rows)
        assert ends > 20

    @pytest.mark.parametrize(
        ("replicas", "num_envs", "lead"),
        [(None, 4, None), (4, None, None), (2, 2, (2, 2))],
        ids=["one buffer", "an environment a replica", "two environments a replica"],
    )
    def test_vector_environments(self, mode, kind, replicas, num_envs, lead):
        vector = make_vector(kind, mode)
        buffer = ReplayBuffer.for_env(vector, 1000, replicas=replicas)
        assert (buffer.replicas, buffer.num_envs) == (replicas, num_envs)
        self.check(vector, buffer, 32, lead)

    def test_one_environment_in_the_vector(self, mode, kind):
        vector = make_vector(kind, mode, SCRIPTS[:1])
        self.check(vector, ReplayBuffer.for_env(vector, 1000), 80)


class TestNextStepSkipsTheReset:
    def make(self, **options):
        return ReplayBuffer(50, {"x": Field((), np.int64), **FLAGS}, autoreset="next_step", **options)

    def test_by_hand(self):
        buffer = self.make()
        terminated, truncated = [False, True, False, False, False], [False, False, False, True, False]
        ids = [
            buffer.add(x=i, terminated=a, truncated=b)
            for i, (a, b) in enumerate(zip(terminated, truncated, strict=True))
        ]
        assert ids == [0, 1, -1, 2, -1]
        assert buffer.columns["x"][:3].tolist() == [0, 1, 3]

    def test_a_failed_add_does_not_lose_the_flag(self):
        buffer = self.make()
        buffer.add(x=0, terminated=True, truncated=False)
        with pytest.raises(ValueError, match="x"):
            buffer.add(x=np.zeros(3, int), terminated=False, truncated=False)
        assert buffer.add(x=1, terminated=False, truncated=False) == -1
        assert buffer.add(x=2, terminated=False, truncated=False) == 1


class TestSameStepNeedsTheFinalObservation:
    def make(self, **options):
        return ReplayBuffer(50, {"next_obs": Field((2,)), **FLAGS}, autoreset="same_step", **options)

    def test_it_is_required_where_an_episode_ended(self):
        buffer = self.make(num_envs=2)
        quiet = {"terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
        buffer.add(next_obs=np.zeros((2, 2), np.float32), **quiet)
        with pytest.raises(ValueError, match="final_obs"):
            buffer.add(next_obs=np.zeros((2, 2), np.float32), **(quiet | {"truncated": np.array([False, True])}))
        assert len(buffer) == 2

    def test_it_is_not_asked_for_where_nothing_is_stored(self):
        buffer = self.make(num_envs=2)
        step = {"next_obs": np.zeros((2, 2), np.float32), "where": np.array([True, False])}
        ends = {"terminated": np.array([False, True]), "truncated": np.zeros(2, bool)}
        assert buffer.add(**step, **ends).tolist() == [0, -1]
        hole = np.array([np.ones(2, np.float32), None], object)
        ids = buffer.add(**step, **ends | {"terminated": np.ones(2, bool)}, final_obs=hole)
        assert ids.tolist() == [1, -1]
        assert buffer.columns["next_obs"][:2].tolist() == [[0, 0], [1, 1]]

    def test_a_single_environment(self):
        buffer = self.make()
        step = {"next_obs": [0.0, 0.0], "terminated": False, "truncated": True}
        with pytest.raises(FieldError, match=r'^1 environments ended, .* pass final_obs=infos\["final_obs"\] to `add`'):
            buffer.add(**step)
        with pytest.raises(FieldError, match="final_obs"):
            buffer.add(**step, final_obs=np.array(None, object))
        assert len(buffer) == 0
        alone = np.empty((), object)
        alone[()] = np.full(2, 3.0)
        for final in (np.full(2, 3.0), [3.0, 3.0], alone):
            assert buffer.get(buffer.add(**step, final_obs=final))["next_obs"].tolist() == [3, 3]
        with pytest.raises(ShapeError, match="final_obs"):
            buffer.add(**step, final_obs=np.zeros(3))

    def test_a_hole_in_an_object_array_where_an_episode_ended(self):
        buffer = self.make(num_envs=2)
        final = np.full(2, None, object)
        final[0] = np.ones(2, np.float32)
        ends = {"terminated": np.array([False, True]), "truncated": np.zeros(2, bool)}
        with pytest.raises(ValueError, match="final_obs"):
            buffer.add(next_obs=np.zeros((2, 2), np.float32), final_obs=final, **ends)
        assert len(buffer) == 0

    @pytest.mark.parametrize(
        ("final", "path"),
        [({"a": np.ones((2, 3))}, "b.0"), ({"a": np.ones((2, 3)), "b": ()}, "b.0"), ({"a": 1, "b": 2}, "b.0")],
    )
    def test_nested_otherwise_than_next_obs(self, final, path):
        next_obs = {"a": Field((3,)), "b": (Field(),)}
        buffer = ReplayBuffer(10, {"next_obs": next_obs, **FLAGS}, autoreset="same_step", num_envs=2)
        next_step = {"a": np.zeros((2, 3), np.float32), "b": (np.zeros(2, np.float32),)}
        final["a"] = np.ones((2, 3), np.float32)
        with pytest.raises(FieldError) as caught:
            buffer.add(
                next_obs=next_step, terminated=np.array([True, False]), truncated=np.zeros(2, bool), final_obs=final
            )
        assert str(caught.value) == (
            f'`final_obs` must be nested as `next_obs` is, but has no `{path}`; pass final_obs=infos["final_obs"]'
        )
        assert len(buffer) == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"final_obs": np.full((2, 2), 1.5)}, DtypeError),
        ({"final_obs": np.array([np.full(2, 1.5), None], object)}, DtypeError),
        ({"final_obs": np.full((2, 2), 70_000)}, DtypeError),
        ({"final_obs": np.zeros((2, 3), np.int16)}, ValueError),
        ({"final_obs": np.zeros((2, 1), np.int16)}, ValueError),
        ({"final_obs": np.zeros(2, np.int16)}, ValueError),
        ({"final_obs": np.array([np.zeros(3, np.int16), None], object)}, ShapeError),
        ({"final_obs": np.array([7, None], object)}, ShapeError),
        ({"terminated": np.ones(3, bool)}, ShapeError),
        ({"terminated": True}, ShapeError),
        ({"terminated": np.ones(2, int)}, DtypeError),
        ({"next_obs": np.zeros((2, 2))}, DtypeError),
        ({"next_obs": np.zeros(3, np.int16)}, ShapeError),
        ({"where": np.ones(3, bool)}, ShapeError),
        ({"where": np.ones(2)}, DtypeError),
    ],
    ids=repr,
)
def test_bad_input_at_an_episodes_end_is_refused_whole(changes, error):
    """The final observation goes through the same rules as any field, and nothing is stored by halves."""
    buffer = ReplayBuffer(10, {"next_obs": Field((2,), np.int16), **FLAGS}, autoreset="same_step", num_envs=2)
    good = {
        "next_obs": np.zeros((2, 2), np.int16),
        "terminated": np.array([True, False]),
        "truncated": np.zeros(2, bool),
        "final_obs": np.ones((2, 2), np.int16),
    }
    with pytest.raises(error) as caught:
        buffer.add(**(good | changes))
    assert isinstance(caught.value, ReplayError)
    assert next(iter(changes)) in str(caught.value)
    assert len(buffer) == 0
    buffer.add(**good)
    assert buffer.columns["next_obs"][:2].tolist() == [[1, 1], [0, 0]]


class ThreeSteps(gym.Env):
    """Shows its episode and how far it is; three steps long."""

    observation_space = gym.spaces.Box(-9, 99, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([self.episode, self.t], np.float32), 1.0, self.t == 3, False, {}


@pytest.mark.parametrize("outer", [lambda env: env, gym.wrappers.RecordEpisodeStatistics])
def test_a_single_environment_that_a_wrapper_resets(outer):
    env = outer(gym.wrappers.Autoreset(ThreeSteps()))
    buffer = ReplayBuffer.for_env(env, 100, seed=0)
    assert buffer.autoreset == "next_step"
    assert ReplayBuffer.for_env(ThreeSteps(), 100).autoreset is None
    obs, _ = env.reset()
    for _ in range(20):
        next_obs, reward, terminated, truncated, _ = env.step(0)
        buffer.add(obs=obs, action=0, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs = next_obs
    batch = buffer.sample(200)
    assert len(buffer) == 15
    assert (batch.next_obs[:, 0] == batch.obs[:, 0]).all()
    assert (batch.next_obs[:, 1] == batch.obs[:, 1] + 1).all()
