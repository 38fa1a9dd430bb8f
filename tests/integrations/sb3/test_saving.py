"""Saving and loading by the library's own calls, and its own pickles."""

import copy
import re

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.save_util import save_to_pkl

from replaylab.errors import ConfigError, SnapshotError
from replaylab.integrations.sb3 import PrioritizedDQN, ReplayLabBuffer, read_pickle
from replaylab.replay import Linear, Prioritized, Recency
from tests.integrations.sb3.library import ACTION, BOX, DICT, stream

SMALL = {"batch_size": 8, "learning_starts": 20, "seed": 1, "device": "cpu"}


def small(kind=PrioritizedDQN, env="CartPole-v1", buffer=ReplayLabBuffer, policy="MlpPolicy", **options):
    size = {"net_arch": [8]}  # the library writes into it
    return kind(policy, env, replay_buffer_class=buffer, policy_kwargs=size, **SMALL | options)


def drawn(buffer):
    buffer.progress = 0.5
    return [buffer.sample(16).observations.tolist() for _ in range(3)]


@pytest.mark.parametrize(("kind", "sampler"), [(PrioritizedDQN, Prioritized()), (DQN, Recency())])
@pytest.mark.parametrize("folder", [False, True])
def test_a_loaded_buffer_draws_as_the_saved_one_would(kind, sampler, folder, tmp_path):
    options = {"sampler": sampler} | ({"snapshots": tmp_path / "rows"} if folder else {})
    model = small(kind, replay_buffer_kwargs=options).learn(60)
    model.save_replay_buffer(tmp_path / "kept")
    assert ((tmp_path / "kept.pkl").stat().st_size < 5000) == folder
    other = small(kind, replay_buffer_kwargs=options)
    other.load_replay_buffer(tmp_path / "kept")
    other._current_progress_remaining = model._current_progress_remaining
    assert drawn(other.replay_buffer) == drawn(model.replay_buffer)
    other.learn(60, reset_num_timesteps=False)
    assert other.replay_buffer.size() == 120
    assert any(name.startswith("replay/") for name in other.logger.name_to_value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the library leaves the file open
def test_a_folder_holds_the_latest_alone(tmp_path):
    model = small(replay_buffer_kwargs={"snapshots": tmp_path / "rows"}).learn(40)
    model.save_replay_buffer(tmp_path / "first")
    model.learn(40, reset_num_timesteps=False)
    model.save_replay_buffer(tmp_path / "second")
    model.load_replay_buffer(tmp_path / "second")
    with pytest.raises(SnapshotError, match="holds another snapshot than the one that was pickled"):
        model.load_replay_buffer(tmp_path / "first")


def test_checkpoints_and_models(tmp_path):
    model = small(n_steps=2, gamma=0.9)
    model.learn(60, CheckpointCallback(30, str(tmp_path), "it", save_replay_buffer=True))
    loaded = PrioritizedDQN.load(tmp_path / "it_60_steps", env=gymnasium.make("CartPole-v1"))
    assert loaded.replay_buffer.size() == 0
    assert loaded.replay_buffer.replay.sampler == Prioritized()
    assert (loaded.replay_buffer.n_steps, loaded.replay_buffer.gamma) == (2, 0.9)
    loaded.load_replay_buffer(tmp_path / "it_replay_buffer_60_steps")
    assert loaded.replay_buffer.size() == 59  # the callback comes before the step is stored
    loaded.learn(30, reset_num_timesteps=False)
    PrioritizedDQN.load(tmp_path / "it_60_steps").predict(np.zeros(4))  # without an environment


def of(gamma, n_steps):
    """Options of an algorithm whose buffer alone is notified of n."""
    return {"gamma": gamma, "replay_buffer_kwargs": {"n_steps": n_steps}}


@pytest.mark.parametrize(
    ("kind", "saved", "into", "name", "values"),
    [
        (PrioritizedDQN, {"gamma": 0.9}, {"gamma": 0.8}, "gamma", (0.8, 0.9)),
        (DQN, of(0.5, 3), of(0.5, 5), "n_steps", (5, 3)),
        (DQN, of(0.5, 3), of(0.99, 3), "gamma", (0.99, 0.5)),
        (DQN, of(0.9, 3), {"gamma": 0.5, "buffer": None}, "gamma", (0.5, 0.9)),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # plain ones leave the file open
def test_a_buffer_of_another_n_or_gamma_is_refused(kind, saved, into, name, values, tmp_path):
    small(kind, **saved).learn(30).save_replay_buffer(tmp_path / "kept")
    message = "`{}` of the buffer that is loaded must be {}, but is {}".format(name, *values)
    with pytest.raises(ConfigError, match=re.escape(message)):
        small(kind, **into).load_replay_buffer(tmp_path / "kept")
    small(kind, **saved).load_replay_buffer(tmp_path / "kept")


@pytest.mark.parametrize(("kind", "sampler"), [(PrioritizedDQN, Prioritized()), (DQN, Recency())])
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the library leaves the file open
def test_a_buffer_of_other_environments_is_refused(kind, sampler, deleted, tmp_path):
    saved, model = (
        small(kind, make_vec_env("CartPole-v1", n_envs=n), replay_buffer_kwargs={"sampler": sampler}) for n in (4, 2)
    )
    saved.learn(40).save_replay_buffer(tmp_path / "kept")
    if deleted:
        del model.replay_buffer
    with pytest.raises(ConfigError, match="`n_envs` of the buffer that is loaded must be 2, but is 4; continue with"):
        model.load_replay_buffer(tmp_path / "kept")
    with pytest.raises(ConfigError, match="`n_envs` of the buffer that is read in must be 2, but is 4"):
        ReplayLabBuffer(40, BOX, ACTION, n_envs=2).read_in(LibraryBuffer(40, BOX, ACTION, n_envs=4))


@pytest.mark.parametrize("steps", [20, 70])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize(
    ("kind", "space", "options"),
    [
        (LibraryBuffer, BOX, {}),
        (LibraryBuffer, BOX, {"optimize_memory_usage": True, "handle_timeout_termination": False}),
        (DictReplayBuffer, DICT, {}),
        (NStepReplayBuffer, BOX, {"n_steps": 3, "gamma": 0.9}),
    ],
    ids=["plain", "one array", "dict", "n-step"],
)
def test_their_pickles_are_read_in(kind, space, options, n_envs, steps, tmp_path, monkeypatch):
    monkeypatch.setattr("replaylab.integrations.sb3.pickles.BLOCK", 16)
    library_buffer = kind(40 * n_envs, space, ACTION, "cpu", n_envs, **options)
    mine, wanted = (
        ReplayLabBuffer(40 * n_envs, space, ACTION, "cpu", n_envs, n_steps=3, gamma=0.9, seed=0) for _ in "ab"
    )
    taken = list(stream(space, n_envs, steps))
    for step in taken:
        library_buffer.add(*copy.deepcopy(step))
    lost = 1 if steps > 40 and options.get("optimize_memory_usage") else 0
    for step in taken[-40 + lost :]:
        infos = [{"TimeLimit.truncated": False}] * n_envs
        wanted.add(*(step if options.get("handle_timeout_termination", True) else (*step[:5], infos)))
    save_to_pkl(tmp_path / "plain.pkl", library_buffer)
    mine.read_in(tmp_path / "plain.pkl")
    ids = np.arange(mine.size() * n_envs)
    batch, expected = (each.replay.as_batch(ids) for each in (mine, wanted))
    for name in ("reward", "action", "terminated", "truncated", "n_steps"):
        np.testing.assert_array_equal(batch[name], expected[name], err_msg=name)
    for name in ("obs", "next_obs"):
        for key in DICT if space is DICT else [...]:
            if options.get("optimize_memory_usage"):
                continue  # where an episode ended it holds the next one's first observation
            np.testing.assert_array_equal(batch[name][key], expected[name][key])


def test_an_algorithm_with_priorities_loads_their_pickle(tmp_path):
    small(DQN, buffer=LibraryBuffer).learn(48).save_replay_buffer(tmp_path / "plain")
    model = small()
    model.load_replay_buffer(tmp_path / "plain")
    assert model.replay_buffer.size() == 48
    model.learn(40)
    with pytest.raises(ConfigError, match="`action_space` of the buffer that is read in must be"):
        ReplayLabBuffer(5, BOX, ACTION).read_in(LibraryBuffer(5, BOX, BOX))
    with pytest.raises(ConfigError, match="can be read in, but got"):
        model.replay_buffer.read_in(model.replay_buffer)


def test_a_folder_in_place_of_a_pickle_is_named(tmp_path):
    model = small().learn(32)
    model.replay_buffer.replay.save(tmp_path / "experience")
    model.save_replay_buffer(tmp_path / "experience")
    for load in (model.load_replay_buffer, model.replay_buffer.read_in, read_pickle):
        with pytest.raises(SnapshotError, match=r"experience is a folder, but .* a file; .*experience\.pkl"):
            load(tmp_path / "experience")
    model.load_replay_buffer(tmp_path / "experience.pkl")
    assert model.replay_buffer.size() == 32


def test_a_loaded_buffer_takes_observations_of_another_dtype():
    """Environments in other processes give their own dtype, which need not be their space's."""
    library_buffer = LibraryBuffer(20, BOX, ACTION, "cpu", 1)
    for step in stream(BOX, 1, 12):
        library_buffer.add(*copy.deepcopy(step))
    *_, (_obs, after, action, _reward, _, _infos) = stream(BOX, 1, 12)
    for begins_again in (False, True):
        mine = ReplayLabBuffer(20, BOX, ACTION, "cpu", 1, n_steps=3, gamma=1.0, seed=0)
        library_buffer.dones[11] = library_buffer.timeouts[11] = 0.0
        mine.read_in(library_buffer)
        then = after.astype(np.float64) + begins_again
        mine.add(then, then, action, np.ones(1), np.zeros(1), [{}])
        rewards = mine.replay.as_batch([10, 11, 12]).reward
        assert (rewards[1] == library_buffer.rewards[11, 0]) == begins_again
        assert rewards[2] == 1.0


def test_what_is_read_in_does_not_go_on_an_episode_of_ones_own():
    library_buffer = LibraryBuffer(100, BOX, ACTION, "cpu")
    mine = ReplayLabBuffer(100, BOX, ACTION, "cpu", n_steps=3, gamma=0.5, seed=0)
    for buffer, first in ((library_buffer, 1000), (mine, 0)):
        for step in range(5):
            obs, after = (np.full((1, *BOX.shape), first + step + k, BOX.dtype) for k in (0, 1))
            buffer.add(obs, after, np.zeros((1, *ACTION.shape)), np.ones(1), np.zeros(1), [{}])
    mine.read_in(library_buffer)
    mine.read_in(library_buffer)
    batch = mine.replay.sample(500)
    gap = np.abs(batch.next_obs.reshape(500, -1)[:, 0] - batch.obs.reshape(500, -1)[:, 0])
    assert gap.max() == 3
    assert set(batch.discount[gap == 1].tolist()) == {0.5}


@pytest.mark.parametrize("options", [{}, {"buffer": ReplayLabBuffer, "kind": DQN}])
def test_copies_of_a_model_learn_on(options):
    """Scheduled numbers need an algorithm's progress, which a copy must find again."""
    kwargs = {"replay_buffer_kwargs": {"sampler": Recency(eta=Linear(0.9, 0.99))}} if options else {}
    model = small(**options, **kwargs).learn(40)
    copied = copy.deepcopy(model)
    copied.learn(20, reset_num_timesteps=False)
    assert copied.replay_buffer.serves is copied
    other = small(**options, **kwargs).learn(20)
    other.replay_buffer = copy.deepcopy(model.replay_buffer)
    other.train(1, 4)
    assert other.replay_buffer.serves is other


def test_a_buffer_follows_its_new_algorithms_progress():
    first, second = small().learn(40), small()
    second.learn(30)
    second._current_progress_remaining = 0.25
    second.replay_buffer, seen = first.replay_buffer, []
    inner = first.replay_buffer.replay
    sample = inner.sample
    inner.sample = lambda size, progress: seen.append(progress) or sample(size, progress=progress)
    second.train(1, 4)
    assert seen == [0.75]


def test_a_deep_copy_leaves_the_folder_alone(tmp_path):
    model = small(DQN, replay_buffer_kwargs={"snapshots": tmp_path / "rows"}).learn(30)
    model.save_replay_buffer(tmp_path / "kept")
    before = drawn(copy.deepcopy(model.replay_buffer))
    model.learn(10, reset_num_timesteps=False)
    copy.deepcopy(model.replay_buffer)
    model.load_replay_buffer(tmp_path / "kept")
    assert drawn(model.replay_buffer) == before


class TestTheLibrarysOwn:
    """Cases of its `test_save_load.py` and `test_her.py`, which failed with this buffer."""

    @pytest.mark.parametrize(("kind", "env"), [(SAC, "Pendulum-v1"), (TD3, "Pendulum-v1"), (DQN, "CartPole-v1")])
    def test_a_saved_buffer_is_extended_by_what_its_arrays_hold(self, kind, env, tmp_path):
        model = small(kind, env, learning_starts=140, buffer_size=1000).learn(150)
        before = copy.deepcopy(model.replay_buffer)
        model.save_replay_buffer(tmp_path / "kept.pkl")
        model.replay_buffer = None
        model.load_replay_buffer(tmp_path / "kept.pkl")
        names = ("observations", "actions", "rewards", "dones", "timeouts")
        columns = {name: getattr(before, name) for name in names}
        for name, column in columns.items():
            np.testing.assert_array_equal(getattr(model.replay_buffer, name), column)
        infos = [[{"TimeLimit.truncated": truncated}] for truncated in columns["timeouts"]]
        steps = [columns[name] for name in ("observations", "observations", "actions", "rewards", "dones")]
        model.replay_buffer.extend(*steps, infos)
        assert model.replay_buffer.full
        np.testing.assert_array_equal(np.roll(model.replay_buffer.timeouts, -150, axis=0), columns["timeouts"])

    @pytest.mark.parametrize(
        ("truncate_last_traj", "n_envs"),
        [
            (False, 1),
            (True, 2),
            pytest.param(False, 2, marks=pytest.mark.slow),
            pytest.param(True, 1, marks=pytest.mark.slow),
        ],
    )
    def test_a_buffer_of_goals_is_deleted_and_loaded(self, truncate_last_traj, n_envs, tmp_path):
        goals = {"n_sampled_goal": 2, "goal_selection_strategy": "future", "compute_terminated": "stored"}
        env = make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs)
        options = {"train_freq": 4, "gradient_steps": n_envs, "replay_buffer_kwargs": goals}
        model = small(SAC, env, policy="MultiInputPolicy", **options).learn(64)
        before = copy.deepcopy(model.replay_buffer)
        model.save_replay_buffer(tmp_path / "kept.pkl")
        del model.replay_buffer
        model.load_replay_buffer(tmp_path / "kept.pkl", truncate_last_traj=truncate_last_traj)
        for name in ("observations", "next_observations"):
            for key, values in getattr(before, name).items():
                np.testing.assert_array_equal(getattr(model.replay_buffer, name)[key], values)
        model.learn(64, reset_num_timesteps=truncate_last_traj)
        assert model.replay_buffer.size() == 128 // n_envs


@pytest.mark.parametrize("sampler", [Prioritized(), Recency()])
def test_an_algorithm_with_priorities_loads_into_no_buffer(sampler, tmp_path):
    model = small(replay_buffer_kwargs={"sampler": sampler}).learn(60)
    model.save_replay_buffer(tmp_path / "kept.pkl")
    before = drawn(model.replay_buffer)
    del model.replay_buffer
    model.load_replay_buffer(tmp_path / "kept.pkl")
    assert drawn(model.replay_buffer) == before
    del model.replay_buffer
    save_to_pkl(tmp_path / "theirs.pkl", LibraryBuffer(20, BOX, ACTION))
    with pytest.raises(ConfigError, match="a ReplayBuffer is read into the algorithm's buffer, which was deleted"):
        model.load_replay_buffer(tmp_path / "theirs.pkl")
