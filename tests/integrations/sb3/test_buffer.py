"""The buffer beside the library's own: the same steps, the same draws, the same batches."""

import copy
import gc
import importlib
import re
import sys
import weakref

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from replaylab.errors import ConfigError, EmptyBufferError, FieldError, MissingExtraError, ShapeError, StorageError
from replaylab.integrations.sb3 import PrioritizedDQN, ReplayLabBuffer
from replaylab.replay import Combined, MemoryMap, Prioritized, ReLo
from tests.integrations.sb3.library import ACTION, BOX, DICT, LibraryDraws, stream
from tests.replay.storage.storage_worlds import NEEDS_LINUX


def batches(buffer, env=None, seed=3, batch_size=64):
    np.random.seed(seed)  # noqa: NPY002 - the library draws so
    return [buffer.sample(batch_size, env=env) for _ in range(3)]


def leaves(samples):
    for name, value in samples._asdict().items():
        yield from value.items() if isinstance(value, dict) else [(name, value)]


def equal(samples, other, discounts=True, exactly=True):
    for (name, mine), (same, expected) in zip(leaves(samples), leaves(other), strict=True):
        assert name == same
        if name == "discounts" and (expected is None or not discounts):
            assert (mine is None) == (expected is None)
            continue
        assert mine.dtype == expected.dtype
        assert mine.shape == expected.shape
        assert torch.equal(mine, expected) if exactly else torch.allclose(mine, expected, atol=1e-5), name


def normalizer(space, n_envs):
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=n_envs), clip_reward=1.0)
    env.observation_space, env.norm_obs_keys = space, None
    if isinstance(space, spaces.Dict):
        env.norm_obs_keys = ["pose"]
        env.obs_rms = {"pose": copy.deepcopy(env.obs_rms)}
    rms = env.obs_rms["pose"] if isinstance(space, spaces.Dict) else env.obs_rms
    rms.mean, rms.var = np.array([0.5, 0.1, -0.2]), np.array([2.0, 0.3, 1.0])
    env.ret_rms.var = np.array(0.7)
    return env


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("space", [BOX, DICT, spaces.Discrete(7)], ids=["box", "dict", "discrete"])
@pytest.mark.parametrize(
    "options",
    [{}, {"optimize_memory_usage": True}, {"compressed": True}, {"handle_timeout_termination": False}],
    ids=["plain", "derived", "compressed", "time limits end"],
)
def test_transitions_are_the_librarys(space, n_envs, options):
    kind = DictReplayBuffer if isinstance(space, spaces.Dict) else LibraryBuffer
    limits = {name: value for name, value in options.items() if name == "handle_timeout_termination"}
    library_buffer = kind(60, space, ACTION, "cpu", n_envs, **limits)
    capacity = library_buffer.buffer_size * n_envs
    mine = ReplayLabBuffer(60, space, ACTION, "cpu", n_envs, sampler=LibraryDraws(capacity, n_envs), **options)
    env = normalizer(space, n_envs) if space is not None and not isinstance(space, spaces.Discrete) else None
    for t, step in enumerate(stream(space, n_envs, 90)):
        library_buffer.add(*copy.deepcopy(step))
        mine.add(*copy.deepcopy(step))
        assert (mine.pos, mine.full, mine.size()) == (library_buffer.pos, library_buffer.full, library_buffer.size())
        if t % 20 == 19 or t == 0:
            for with_env in {None, env}:
                for samples, other in zip(batches(mine, with_env), batches(library_buffer, with_env), strict=True):
                    equal(samples, other)
    np.testing.assert_array_equal(mine.dones, library_buffer.dones)
    mine.reset()
    assert (mine.pos, mine.full, mine.size()) == (0, False, 0)
    with pytest.raises(EmptyBufferError):
        mine.sample(1)


@NEEDS_LINUX
def test_rows_in_a_file(tmp_path):
    library_buffer = LibraryBuffer(40, BOX, ACTION, "cpu", 2)
    storage = MemoryMap(tmp_path / "rows")
    mine = ReplayLabBuffer(40, BOX, ACTION, "cpu", 2, storage=storage, n_steps=3, gamma=0.9)
    for step in stream(BOX, 2, 30):
        library_buffer.add(*step), mine.add(*step)
    batch = mine.sample(200)
    places = (library_buffer.observations.reshape(-1, 3) == batch.observations.numpy()[:, None]).all(-1)
    assert places.sum(1).tolist() == [1] * 200
    assert (library_buffer.actions.reshape(-1, 2)[places.argmax(1)] == batch.actions.numpy()).all()
    env = normalizer(BOX, 2)
    with pytest.raises(ConfigError, match="leave out `storage`"):
        mine.sample(2, env=env)
    with pytest.raises(ConfigError, match='next_obs="stored"'):
        ReplayLabBuffer(40, BOX, ACTION, "cpu", 2, optimize_memory_usage=True, storage=storage)
    with pytest.raises(StorageError, match="declared otherwise"):
        ReplayLabBuffer(40, BOX, ACTION, "cpu", 4, storage=storage)


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("derived", [False, True])
def test_n_step_returns_are_the_librarys(n_envs, normalized, derived):
    library_buffer = NStepReplayBuffer(60, BOX, ACTION, "cpu", n_envs, n_steps=4, gamma=0.9)
    draws = LibraryDraws(library_buffer.buffer_size * n_envs, n_envs)
    mine = ReplayLabBuffer(60, BOX, ACTION, "cpu", n_envs, derived, sampler=draws, n_steps=4, gamma=0.9)
    env = normalizer(BOX, n_envs) if normalized else None
    for t, step in enumerate(stream(BOX, n_envs, 90)):
        library_buffer.add(*step), mine.add(*step)
        if t % 20 == 19:
            for samples, other in zip(batches(mine, env), batches(library_buffer, env), strict=True):
                equal(samples, other, discounts=False, exactly=False)
                ends = samples.dones == 1
                assert torch.allclose(samples.discounts[~ends], other.discounts[~ends].float())
                assert (samples.discounts[ends] == 0).all()  # as `1 - dones` says, too


def test_a_left_episodes_returns_have_no_steps_of_the_next():
    """As when `learn` is called again: the environment is reset, and nothing reports it."""
    buffer = ReplayLabBuffer(60, BOX, ACTION, "cpu", 2, n_steps=3, gamma=0.5)
    obs = np.arange(30, dtype=np.float32).reshape(5, 2, 3)

    def add(before, after, reward):
        buffer.add(before, after, np.zeros((2, 2)), np.full(2, reward, np.float32), np.zeros(2), [{}, {}])

    add(obs[0], obs[1], 1.0)
    jumped = obs[1].copy()
    jumped[1] = obs[3, 1]
    add(jumped, obs[2], 10.0)
    batch = buffer.replay.as_batch([0, 1, 2, 3])
    assert batch.reward.tolist() == [6.0, 1.0, 10.0, 10.0]
    assert batch.n_steps.tolist() == [2, 1, 1, 1]
    assert batch.discount.tolist() == [0.25, 0.5, 0.5, 0.5]
    assert not (batch.terminated | batch.truncated).any()


FRAMES = spaces.Box(0, 255, (4, 9, 9), np.uint8)


def frames(n_envs, steps, lives=(7, 5, 6)):
    """Yield steps of stacks of frames, zeros before an episode's first, as `VecFrameStack` makes them."""
    rng = np.random.default_rng(0)

    def frame():
        return rng.integers(0, 255, (9, 9), np.uint8)

    def begin():
        return np.concatenate([np.zeros((3, 9, 9), np.uint8), frame()[None]])

    obs = np.stack([begin() for _ in range(n_envs)])
    for t in range(1, steps + 1):
        after = np.concatenate([obs[:, 1:], np.stack([frame()[None] for _ in range(n_envs)])], 1)
        done = np.array([t % lives[e] == 0 for e in range(n_envs)])
        yield obs, after, rng.integers(0, 3, n_envs), np.zeros(n_envs, np.float32), done, [{} for _ in done]
        obs = np.stack([begin() if done[e] else after[e] for e in range(n_envs)])


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("compressed", [False, True])
def test_frames_are_stored_once(n_envs, derived, compressed):
    library_buffer = LibraryBuffer(300, FRAMES, spaces.Discrete(3), "cpu", n_envs)
    draws = LibraryDraws(library_buffer.buffer_size * n_envs, n_envs)
    options = {"sampler": draws, "frame_stack": 4, "compressed": compressed}
    mine = ReplayLabBuffer(300, FRAMES, spaces.Discrete(3), "cpu", n_envs, derived, **options)
    for step in frames(n_envs, 60):
        library_buffer.add(*step), mine.add(*step)
    for samples, other in zip(batches(mine), batches(library_buffer), strict=True):
        equal(samples, other)


def test_frames_take_an_eighth_of_the_memory():
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    mine = ReplayLabBuffer(1000, space, spaces.Discrete(3), optimize_memory_usage=True, frame_stack=4)
    library_bytes = 1000 * 2 * 4 * 84 * 84  # the library's default, with time limits
    assert mine.replay.nbytes < 0.15 * library_bytes


def test_frames_must_fit():
    with pytest.raises(FieldError, match="must divide the first axis"):
        ReplayLabBuffer(300, FRAMES, ACTION, frame_stack=3)
    with pytest.raises(FieldError, match="must divide the first axis"):
        ReplayLabBuffer(300, DICT, ACTION, frame_stack=4)


def small(kind, env="CartPole-v1", **options):
    arguments = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 8, "learning_starts": 20, "seed": 1, "device": "cpu"}
    return kind("MlpPolicy", env, replay_buffer_class=ReplayLabBuffer, **arguments | options)


class TestTheAlgorithmsOwn:
    @pytest.mark.parametrize("kind", [DQN, PrioritizedDQN])
    @pytest.mark.filterwarnings("ignore:`n_steps=4` is ignored")  # the library cannot know better
    def test_n_and_gamma(self, kind):
        model = small(kind, n_steps=4, gamma=0.7).learn(40)
        discounts = {round(discount, 5) for discount in model.replay_buffer.sample(200).discounts.flatten().tolist()}
        assert {round(0.7**4, 5)} < discounts <= {0.0, *(round(0.7**n, 5) for n in (1, 2, 3, 4))}

    def test_only_the_library_warns_that_n_is_ignored(self, recwarn):
        small(PrioritizedDQN, n_steps=4)
        assert not recwarn.list

    def test_n_as_the_library_documents_it(self):
        model = small(DQN, gamma=0.7, replay_buffer_kwargs={"n_steps": 3, "gamma": 0.7})
        assert (model.replay_buffer.n_steps, model.replay_buffer.gamma) == (3, 0.7)

    @pytest.mark.parametrize(("name", "value"), [("gamma", 0.9), ("n_steps", 2)])
    def test_contradictions_are_refused(self, name, value):
        with pytest.raises(ConfigError, match=f"`{name}` of the buffer must be that of the algorithm"):
            small(PrioritizedDQN, n_steps=3, gamma=0.7, replay_buffer_kwargs={name: value})

    def test_gamma_is_needed_where_nobody_can_be_asked(self):
        with pytest.raises(ConfigError, match="`gamma` must be given with n_steps=3"):
            ReplayLabBuffer(10, BOX, ACTION, n_steps=3)

    def test_its_seed(self):
        first, two = (small(DQN, seed=seed).learn(30) for seed in (5, 5))
        assert torch.equal(first.replay_buffer.sample(8).observations, two.replay_buffer.sample(8).observations)

    def test_it_is_not_kept_alive(self):
        model = small(DQN)
        buffer, alive = model.replay_buffer, weakref.ref(model)
        del model
        gc.collect()
        assert alive() is None
        assert buffer.size() == 0

    def test_its_logger(self):
        model = small(PrioritizedDQN)
        model.learn(60)
        figures = {name: value for name, value in model.logger.name_to_value.items() if name.startswith("replay/")}
        assert figures["replay/size"] == 60
        assert figures["replay/transitions_replayed"] == 8 * 10
        assert 0 < figures["replay/weight_mean"] <= 1
        assert 0 <= figures["replay/age_mean"] < 60
        assert figures["replay/td_error_mean"] > 0
        assert figures["replay/stale_updates"] == 0

    def test_several_environments_and_normalized_ones(self):
        env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=3))
        model = small(SAC, env, replay_buffer_kwargs={"n_steps": 3}, optimize_memory_usage=True)
        model.learn(120)
        assert model.replay_buffer.size() == 40
        with pytest.warns(UserWarning, match="last trajectory in the replay buffer will be truncated"):
            model.learn(60)


def test_a_time_limit_ends_an_episode_whatever_done_says():
    buffer = ReplayLabBuffer(10, BOX, ACTION, n_steps=3, gamma=0.5)
    for step in range(4):
        obs, after = np.full(3, step / 9), np.full(3, (step + 1) / 9)
        buffer.add(obs, after, np.zeros(2), np.ones(1), np.zeros(1), [{"TimeLimit.truncated": step == 1}])
    assert buffer.timeouts[:5, 0].tolist() == buffer.dones[:5, 0].tolist() == [0, 1, 0, 0, 0]
    samples = buffer._samples(buffer.replay.as_batch([0, 1, 2]), None)
    assert samples.rewards[:, 0].tolist() == [1.5, 1.0, 1.5]
    assert not samples.dones.any()


@pytest.mark.parametrize("options", [{}, {"optimize_memory_usage": True, "compressed": True}])
def test_arrays_by_place_are_the_librarys(options):
    library_buffer, mine = (
        DictReplayBuffer(24, DICT, ACTION, n_envs=2),
        ReplayLabBuffer(24, DICT, ACTION, n_envs=2, **options),
    )
    for obs, after, *others in stream(DICT, 2, 17):
        mine.add(obs, after, *others)
        library_buffer.add(dict(obs), dict(after), *others)  # which reshapes in place
    assert (mine.pos, mine.full, mine.size()) == (library_buffer.pos, library_buffer.full, library_buffer.size())
    for name in ("actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(library_buffer, name))
    for name in ("observations", "next_observations"):
        for key, column in getattr(mine, name).items():
            np.testing.assert_array_equal(column, getattr(library_buffer, name)[key].reshape(column.shape))


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Combined(), "gives another number of rows than asked for"),
        (ReLo(), "wants the loss under the target network"),
        (3, "`sampler` must be a Sampler"),
    ],
)
def test_samplers_that_do_not_fit_are_refused(sampler, message):
    with pytest.raises(ConfigError, match=message):
        ReplayLabBuffer(10, BOX, ACTION, sampler=sampler)


def test_a_schedule_without_an_algorithm_holds_its_start_value():
    buffer = ReplayLabBuffer(10, BOX, ACTION, sampler=Prioritized())
    for step in stream(BOX, 1, 3):
        buffer.add(*step)
    with pytest.warns(UserWarning, match=r"start value 0\.4 because .*; set `progress` of the buffer"):
        buffer.sample(2)
    buffer.sample(2)
    buffer.progress = 0.5
    assert buffer.sample(2).rewards.shape == (2, 1)


@pytest.mark.parametrize(
    ("module", "missing"),
    [("sb3", "stable_baselines3"), ("sb3_contrib", "sb3_contrib"), ("sb3_contrib", "stable_baselines3")],
)
def test_a_missing_library_is_one_line_with_the_command(module, missing, monkeypatch):
    """As in a process that has not imported either of them."""
    for name in list(sys.modules):
        if re.match(r"(replaylab\.integrations\.sb3|sb3_contrib)", name):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r'^[^\n]*pip install "replaylab\[sb3\]"[^\n]*$'):
        importlib.import_module(f"replaylab.integrations.{module}")


@pytest.mark.parametrize("wrap", [np.array, list, np.atleast_2d, lambda flags: np.float32(flags[0])])
def test_a_time_limit_may_be_an_array_or_list_of_length_one(wrap):
    """As in ``infos`` made of the library's own `timeouts`, whose rows are arrays."""
    buffer = ReplayLabBuffer(10, BOX, ACTION)
    for step in range(4):
        infos = [{"TimeLimit.truncated": wrap([step % 2 == 1])}]
        buffer.add(np.zeros(3), np.ones(3), np.zeros(2), np.ones(1), np.ones(1), infos)
    assert buffer.timeouts[:4, 0].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("wrong", ["yes", [True, False], [], 2, 1j, None])
def test_a_time_limit_that_is_no_truth_is_refused(wrong):
    buffer = ReplayLabBuffer(10, BOX, ACTION)
    with pytest.raises(ConfigError, match=r'^`info\["TimeLimit.truncated"\]` must be True or False, alone or in an'):
        buffer.add(np.zeros(3), np.ones(3), np.zeros(2), np.ones(1), np.ones(1), [{"TimeLimit.truncated": wrong}])
    assert buffer.size() == 0


PICTURES = spaces.Box(0, 255, (3, 6, 5), np.uint8)
LAST = np.zeros((2, 6, 5, 3), np.uint8)
"""Pictures with channels last, where the space has them first."""


@pytest.mark.parametrize("space", [PICTURES, spaces.Dict({"camera": PICTURES, "room": spaces.Discrete(4)})])
@pytest.mark.parametrize("name", ["obs", "next_obs"])
def test_pictures_with_channels_last_are_refused(space, name):
    buffer, (obs, next_obs, *others) = ReplayLabBuffer(20, space, ACTION, n_envs=2), next(iter(stream(space, 2, 1)))
    observations = {"obs": obs, "next_obs": next_obs}
    wrong = LAST if space is PICTURES else obs | {"camera": LAST}
    with pytest.raises(
        ShapeError, match=rf"`{name}(.camera)?` must be of shape \(2, 3, 6, 5\), but got \(2, 6, 5, 3\)"
    ):
        buffer.add(*(observations | {name: wrong}).values(), *others)
    assert buffer.size() == 0
    buffer.add(obs, next_obs, *others)
    assert buffer.size() == 1


def test_stacks_with_channels_last_are_refused():
    buffer = ReplayLabBuffer(20, FRAMES, spaces.Discrete(3), frame_stack=4)
    obs = np.zeros((1, 9, 9, 4), np.uint8)
    with pytest.raises(ShapeError):
        buffer.add(obs, obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("action", np.zeros((2, 3, 2))),
        ("action", np.zeros((6, 2))),
        ("reward", np.zeros(4)),
        ("done", np.zeros((4, 1))),
    ],
)
def test_values_of_another_shape_are_refused(name, wrong):
    buffer = ReplayLabBuffer(20, BOX, spaces.Box(-1, 1, (2, 3)), n_envs=2)
    action = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    step = {"obs": np.zeros((2, 3)), "next_obs": np.zeros((2, 3)), "action": action}
    step |= {"reward": np.zeros(2), "done": np.zeros(2), "infos": [{}, {}]}
    with pytest.raises(ShapeError):
        buffer.add(**step | {name: wrong})
    for as_given in (action, action.reshape(2, 6)):
        buffer.add(**step | {"action": as_given})
        np.testing.assert_array_equal(buffer.actions[buffer.pos - 1], action.reshape(2, 6))
