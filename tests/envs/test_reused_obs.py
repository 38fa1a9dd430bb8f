"""Environments that return the same observation array again and again: what is stored is what was observed."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TimeLimit

from replaylab.envs import env_state, make_vector_env
from replaylab.learners import Hook, QLearning, TrainingConfig, train
from replaylab.replay import ReplayRecorder, Uniform
from tests.learners.training.whole import RandomWalk

LINE = spaces.Box(-9, 99, (1,), np.float32)
SPACES = {"box": LINE, "dict": spaces.Dict(x=LINE), "tuple": spaces.Tuple((LINE, LINE))}
LENGTH = 5
RETURNED = []


class Reused(gym.Env):
    """Counts its steps in an array that it always returns.

    Args:
        kind: A key of `SPACES`.
        length: Steps after which its episodes terminate; None: they do not.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, kind="box", length=None):
        self.observation_space, self.length = SPACES[kind], length
        self.count, self.episodes = np.zeros(1, np.float32), 0
        self.obs = {"box": self.count, "dict": {"x": self.count}, "tuple": (self.count, self.count)}[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count[:], self.episodes = 0, self.episodes + 1
        return self.obs, {}

    def step(self, action):
        self.count += 1
        return self.obs, 1.0, bool(self.count == self.length), False, {}

    def own_state(self):
        return {"episodes": np.array(self.episodes)}

    def restore_own(self, state):
        self.episodes = int(state["episodes"])


class Saved(gym.Wrapper):
    """A game that saves itself."""

    def state(self):
        return {"count": self.unwrapped.count.copy()}

    def restore(self, state):
        self.unwrapped.count[:] = state["count"]
        return self.unwrapped.obs


class ReusedVector(VectorEnv):
    """Copies that count together, in an array that is always returned."""

    single_observation_space, single_action_space = spaces.Discrete(99), spaces.Discrete(2)

    def __init__(self, num_envs, autoreset_mode=AutoresetMode.DISABLED):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode(autoreset_mode)}
        self.observation_space = self.action_space = spaces.MultiDiscrete([99] * num_envs)
        self.obs = np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, options=None):
        self.obs[:] = 0
        return self.obs, {}

    def step(self, actions):
        self.obs += 1
        return self.obs, np.ones(self.num_envs), self.obs == LENGTH, np.zeros(self.num_envs, bool), {}


@pytest.fixture(autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))
        gym.register("Reused-v0", entry_point=Reused, disable_env_checker=True)
        outermost = {"disable_env_checker": True, "order_enforce": False}  # with no wrapper of Gymnasium's
        gym.register("Saved-v0", entry_point=lambda: Saved(Reused(length=2)), **outermost)
        gym.register("ReusedVector-v0", vector_entry_point=ReusedVector)
        yield


def assert_counted(buffer, envs=1):
    stored = buffer.get(np.arange(len(buffer)))
    steps = np.repeat(np.arange(len(buffer) // envs) % LENGTH, envs)
    for name, shift in (("obs", 0), ("next_obs", 1)):
        tree = stored[name]
        leaves = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple) else [tree]
        for leaf in leaves:
            np.testing.assert_array_equal(leaf[:, 0], steps + shift)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("options", [{"length": LENGTH}, {"max_episode_steps": LENGTH}], ids=["ends", "is cut off"])
def test_vector_env_steps_store_what_was_observed(kind, mode, options):
    envs = make_vector_env("Reused-v0", 2, autoreset_mode=mode, kind=kind, **options)
    recorder = ReplayRecorder.for_env(envs, 100, reset_ended=True)
    recorder.reset(seed=[0, 1])
    for _ in range(18):
        recorder.step(np.zeros(2, int))
    assert_counted(recorder.buffer, envs=2)
    assert len(recorder.buffer) == (30 if mode is AutoresetMode.NEXT_STEP else 36)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("reset_ended", [False, True])
def test_single_env_steps_store_what_was_observed(kind, limited, reset_ended):
    env = TimeLimit(Reused(kind), LENGTH) if limited else Reused(kind, LENGTH)
    recorder = ReplayRecorder.for_env(env, 100, reset_ended=reset_ended)
    recorder.reset()
    for _ in range(18):
        _, _, terminated, truncated, _ = recorder.step(0)
        if (terminated or truncated) and not reset_ended:
            recorder.reset()
    assert_counted(recorder.buffer)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_own_state_has_the_same_name_in_every_mode(mode):
    envs = make_vector_env("Reused-v0", 2, autoreset_mode=mode)
    env_state.prepare(envs)
    envs.reset(seed=0)
    assert "kept.1.episodes" in env_state.state_of(envs)


def test_copy_that_saves_itself_is_saved_by_itself():
    envs = make_vector_env("Saved-v0", 2)
    env_state.prepare(envs)
    recorder = ReplayRecorder.for_env(envs, 100)
    recorder.reset(seed=[0, 1])
    for _ in range(3):
        recorder.step(np.zeros(2, int))
    state = env_state.state_of(envs)
    assert state["count"].tolist() == [[1.0], [1.0]]
    assert recorder.buffer.get(np.arange(6))["next_obs"].ravel().tolist() == [1, 1, 2, 2, 1, 1]


class Seen(Hook):
    def __init__(self):
        self.pairs = []

    def on_step(self, run, step, ids):
        self.pairs += zip(np.ravel(step.obs).tolist(), np.ravel(step.true_next_obs()).tolist(), strict=True)


def test_vector_env_reusing_its_batch_trains_on_observed_values():
    seen = Seen()
    learner = QLearning(learning_starts=4, batch_size=2)
    config = TrainingConfig("ReusedVector-v0", learner, Uniform(), 12, eval_every=None, autoreset_mode="Disabled")
    train(config, [0], [seen])
    assert seen.pairs == [(t % LENGTH, t % LENGTH + 1) for t in range(12)]


class Watching(RandomWalk):
    """Notes what its environment returned, and looks at it at the end."""

    def train(self, run):
        make_env = run.make_env
        RETURNED.clear()

        def noting():
            env = make_env()
            step, reset = env.step, env.reset
            env.step = lambda action: self.note(step(action))
            env.reset = lambda **options: self.note(reset(**options))
            return env

        run.make_env = noting
        super().train(run)

    def note(self, result):
        RETURNED.append(result[0])
        return result


def test_whole_algorithm_keeps_what_it_observed():
    seen, algorithm = Seen(), Watching()
    options = {"env_options": {"length": LENGTH}, "eval_every": None, "measure_every": None}
    train(TrainingConfig("Reused-v0", algorithm, Uniform(), 12, **options), [0], [seen])
    assert seen.pairs == [(t % LENGTH, t % LENGTH + 1) for t in range(12)]
    observed = np.ravel(RETURNED).tolist()
    assert observed[: LENGTH + 2] == [0, 1, 2, 3, 4, 5, 0]
