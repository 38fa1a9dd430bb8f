"""Buffers of Stable-Baselines3's own, read into plain ones."""

from copy import deepcopy

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.save_util import save_to_pkl

from replaylab.errors import ConfigError
from replaylab.integrations.sb3 import ReplayLabBuffer, read_pickle
from replaylab.replay import NStep
from tests.integrations.sb3.library import ACTION, BOX, DICT, stream


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("space", [BOX, DICT], ids=["box", "dict"])
def test_a_pickle_becomes_a_plain_buffer(space, n_envs, tmp_path):
    kind = DictReplayBuffer if space is DICT else LibraryBuffer
    library_buffer = kind(40 * n_envs, space, ACTION, "cpu", n_envs)
    for step in stream(space, n_envs, 55):
        library_buffer.add(*deepcopy(step))  # it reshapes what it is given
    save_to_pkl(tmp_path / "replay_buffer.pkl", library_buffer)
    replay = read_pickle(tmp_path / "replay_buffer.pkl", transforms=[NStep(3, 0.9)], seed=0)
    assert (replay.capacity, len(replay), replay.num_envs) == (40 * n_envs, 40 * n_envs, None if n_envs == 1 else 3)
    steps = replay.get(range(len(replay)))
    places = (np.arange(40) + library_buffer.pos) % 40
    dones, timeouts = (library_buffer.dones[places].ravel() != 0, library_buffer.timeouts[places].ravel() != 0)
    np.testing.assert_array_equal(steps["reward"], library_buffer.rewards[places].ravel())
    np.testing.assert_array_equal(steps["terminated"], dones & ~timeouts)
    np.testing.assert_array_equal(steps["truncated"], dones & timeouts)
    keys = DICT.spaces if space is DICT else [None]
    for key in keys:
        obs, after = (columns if key is None else columns[key] for columns in (steps["obs"], steps["next_obs"]))
        expected, following = (
            column if key is None else column[key]
            for column in (library_buffer.observations, library_buffer.next_observations)
        )
        np.testing.assert_array_equal(obs, expected[places].reshape(obs.shape))
        np.testing.assert_array_equal(after, following[places].reshape(after.shape))


def test_what_is_none_of_theirs_is_refused():
    buffer = ReplayLabBuffer(20, BOX, ACTION, "cpu")
    for wrong in (buffer, buffer.replay):
        with pytest.raises(ConfigError, match="a ReplayBuffer of stable-baselines3 can be read in"):
            read_pickle(wrong)


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("nested", [False, True])
def test_episodes_continue_where_observations_are_nan(n_envs, nested):
    """Environments may have NaN in what a robot cannot sense."""
    space = spaces.Dict({"pose": BOX, "blind": BOX}) if nested else BOX
    library_buffer = (DictReplayBuffer if nested else LibraryBuffer)(40 * n_envs, space, ACTION, "cpu", n_envs)
    for t in range(20):
        observations = (np.full((n_envs, 3), (step, np.nan, -0.0), np.float32) for step in (t, t + 1))
        obs, after = (dict.fromkeys(space.spaces, values) if nested else values for values in observations)
        infos = [{"TimeLimit.truncated": t == 9}] * n_envs
        library_buffer.add(obs, after, np.zeros((n_envs, 2)), np.ones(n_envs), np.full(n_envs, t in (9, 19)), infos)
    replay = read_pickle(library_buffer, transforms=[NStep(3, 1.0)])
    steps = replay.as_batch(range(20 * n_envs)).n_steps.reshape(20, n_envs)
    assert steps[:, 0].tolist() == steps[:, -1].tolist() == [3] * 8 + [2, 1] + [3] * 8 + [2, 1]
    buffer = ReplayLabBuffer(40 * n_envs, space, ACTION, "cpu", n_envs, n_steps=3, gamma=1.0)
    buffer.read_in(library_buffer)
    np.testing.assert_array_equal(buffer.replay.as_batch(range(20 * n_envs)).n_steps, steps.ravel())
