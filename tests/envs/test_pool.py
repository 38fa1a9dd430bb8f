"""EnvPool and this library's own stepping are the same learning problem."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from replaylab.envs import make_vector_env
from replaylab.errors import ConfigError, MissingExtraError
from replaylab.learners import DQN
from replaylab.learners.api.random_streams import numbers
from replaylab.replay import Uniform
from replaylab.study import Spec
from replaylab.study.execution.worker.preflight import check_chunk
from replaylab.study.execution.worker.training import train_chunk
from replaylab.study.plan import plan
from tests.learners.calls import assert_same_rows, train


def test_a_missing_pool_is_reported_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingExtraError, match=r'pip install "replaylab\[envpool\]"'):
        make_vector_env("CartPole-v1", 1, backend="envpool", autoreset_mode="NextStep")


def test_a_pool_resets_in_the_next_step_only():
    with pytest.raises(ConfigError, match='backend "envpool" resets in NEXT_STEP mode only, but got SAME_STEP'):
        make_vector_env("CartPole-v1", 1, backend="envpool", autoreset_mode="SameStep")


def test_an_unknown_backend_is_reported():
    with pytest.raises(ConfigError, match="`backend` must be None, 'ale' or 'envpool', but got 'jax'"):
        make_vector_env("CartPole-v1", 1, backend="jax")


@pytest.fixture
def pool():
    pytest.importorskip("envpool", reason="EnvPool has no wheel for every machine")

    def make(env_id, num_envs):
        return make_vector_env(env_id, num_envs, backend="envpool", autoreset_mode="NextStep")

    return make


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1"])
def test_both_are_the_same_learning_problem(pool, env_id):
    """Same spaces; from the pool's own states, the same step; the same ends and time limits."""
    pooled, stepped = pool(env_id, 4), make_vector_env(env_id, 4, autoreset_mode="NextStep")
    assert pooled.single_observation_space.shape == stepped.single_observation_space.shape
    for bound in ("low", "high"):
        left, right = (getattr(env.single_observation_space, bound) for env in (pooled, stepped))
        np.testing.assert_allclose(left, right, rtol=1e-6)
    assert pooled.single_action_space.n == stepped.single_action_space.n
    assert pooled.metadata["autoreset_mode"] is stepped.metadata["autoreset_mode"]
    obs, _ = pooled.reset(seed=[3, 1, 4, 1])
    stepped.reset(seed=0)
    actions, steps, ended = np.random.default_rng(0), np.zeros(4, int), np.zeros(4, bool)
    limit, ends, cut = stepped.max_episode_steps, 0, 0
    for _ in range(700):
        action = actions.integers(stepped.single_action_space.n, size=4)
        if env_id == "MountainCar-v0":
            action = np.where(obs[:, 1] >= 0, 2, 0) if actions.random() < 0.9 or ends < 4 else action
        state = stepped.state()
        stepped.restore({**state, "variables": variables(env_id, obs), "steps": steps, "ended": ended})
        expected, got = stepped.step(action), pooled.step(action)
        going = ~ended
        np.testing.assert_allclose(got[0][going], expected[0][going], atol=2e-5)
        for a, b in zip(got[1:4], expected[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        obs, (terminated, truncated) = got[0], got[2:4]
        steps = np.where(ended, 0, steps + 1)
        ended = terminated | truncated
        assert (steps[truncated] == limit).all()
        ends, cut = ends + terminated.sum(), cut + truncated.sum()
    assert (cut if env_id == "Acrobot-v1" else ends) >= 4


def variables(env_id, obs):
    obs = obs.astype(np.float64)
    if env_id != "Acrobot-v1":
        return obs
    return np.stack([np.arctan2(obs[:, 1], obs[:, 0]), np.arctan2(obs[:, 3], obs[:, 2]), obs[:, 4], obs[:, 5]], axis=1)


def test_a_pools_copy_depends_on_its_own_seed(pool):
    env = pool("CartPole-v1", 3)
    first, _ = env.reset(seed=[5, 6, 5])
    np.testing.assert_array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(pool("CartPole-v1", 1).reset(seed=[6])[0][0], first[1])
    with pytest.raises(ConfigError, match="must be left out"):
        env.reset(options={"reset_mask": np.ones(3, bool)})


def test_what_a_pool_does_not_know_is_reported(pool):
    with pytest.raises(ConfigError, match="EnvPool cannot make 'CartPol-v1'"):
        pool("CartPol-v1", 1)


class FakePool:
    """EnvPool's face over this library's own stepping."""

    def __init__(self, env, seeds):
        self.env, self.seeds, self.closed = env, seeds, False
        self.config = {"max_episode_steps": env.max_episode_steps}
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space

    def reset(self):
        return self.env.reset(seed=self.seeds)

    def step(self, actions):
        return self.env.step(actions)

    def close(self):
        self.closed = True


@pytest.fixture
def fake(monkeypatch):
    def make(task_id, env_type, num_envs, seed, **kwargs):
        assert env_type == "gymnasium"
        return FakePool(make_vector_env(task_id, num_envs, autoreset_mode="NextStep", **kwargs), seed)

    monkeypatch.setitem(sys.modules, "envpool", SimpleNamespace(make=make))


def test_a_run_on_a_pool_equals_one_stepped_by_this_library(fake, monkeypatch):
    """Evaluations, held-out states and budgets of episodes included; only starts would differ with the real one."""
    for module in ("training.state", "evaluation.evaluators"):  # an EnvPool's seeds have 31 bits
        seeds = f"replaylab.learners.{module}.numbers"
        monkeypatch.setattr(seeds, lambda *args: [number % 2**31 for number in numbers(*args)])
    learner = DQN(hidden=(8,), batch_size=8, learning_starts=20, capacity=500)
    options = {"eval_every": 50, "eval_episodes": 2, "log_every": 20}
    pool = train("CartPole-v1", learner, Uniform(), [3, 4], 150, env_options={"backend": "envpool"}, **options)
    metrics = train("CartPole-v1", learner, Uniform(), [3, 4], 150, autoreset_mode="NextStep", **options)
    assert_same_rows(pool, metrics)
    reported = train(
        "CartPole-v1", learner, Uniform(), [3], total_episodes=4, held_out=5, env_options={"backend": "envpool"}
    ).of("eval/held_out_q")[1]
    assert np.isfinite(reported).all()


def test_what_a_pool_cannot_do_is_reported_before_training(fake, tmp_path):
    options = {"env_options": {"backend": "envpool"}}
    with pytest.raises(ConfigError, match="a checkpoint needs an environment that can continue exactly"):
        train("CartPole-v1", DQN(), Uniform(), [3], 100, save=tmp_path, save_every=50, **options)
    with pytest.raises(ConfigError, match="a budget of episodes for several seeds at once needs"):
        train("CartPole-v1", DQN(), Uniform(), [3, 4], total_episodes=5, **options)
    with pytest.raises(ConfigError, match="resets in NEXT_STEP mode only, but got SAME_STEP"):
        train("CartPole-v1", DQN(), Uniform(), [3], 100, autoreset_mode="SameStep", **options)


def test_a_study_trains_on_a_pool(fake, tmp_path):
    table = {
        "name": "pools",
        "environments": ["CartPole-v1"],
        "seeds": 1,
        "baseline": "uniform",
        "budget": {"steps": 60},
        "evaluation": {"every": 30, "episodes": 1},
        "learners": {"dqn": {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20}},
        "strategies": {"uniform": {"type": "uniform"}},
        "env_options": {"CartPole-v1": {"backend": "envpool"}},
    }
    (chunk,) = plan(Spec.from_table(table))
    check_chunk(chunk)
    assert (train_chunk(chunk)["metric"] == "eval/mean_reward").sum() == 2
