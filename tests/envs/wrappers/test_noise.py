import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import ClipReward

from replaylab.envs import NoisyRewards, env_state, make_vector_env
from replaylab.envs.wrappers.noise import VectorNoisyRewards
from replaylab.errors import ConfigError

gym.register("NoisyLake-v0", lambda: NoisyRewards(gym.make("FrozenLake-v1"), 1.0))
gym.register("ClippedBreakout-v0", lambda: ClipReward(gym.make("replaylab/MinAtar-Breakout-v1"), -1, 1))


def rewards(env, steps, key):
    rng = np.random.default_rng(key)
    count = env.single_action_space.n
    return [env.step(rng.integers(0, count, env.num_envs))[1].tolist() for _ in range(steps)]


KEEPING = [
    ("NoisyLake-v0", {}),
    ("replaylab/NoisyRewards-v0", {"render_mode": "rgb_array"}),
    ("ClippedBreakout-v0", {}),
    ("replaylab/MinAtar-Seaquest-v1", {"render_mode": "rgb_array"}),
]


@pytest.mark.parametrize(("env_id", "options"), KEEPING)
@pytest.mark.parametrize("steps", [0, 3, 150])
def test_what_single_environments_keep_over_episodes_comes_back(env_id, options, steps):
    for seed in range(12 if steps < 150 else 6):
        env, other = (make_vector_env(env_id, 2, **options) for _ in range(2))
        env_state.prepare(env)
        env_state.prepare(other)
        obs, _ = env.reset(seed=[seed, seed + 2**70])
        rewards(env, steps, seed)
        obs = env_state._inner(env)._env_obs
        state = env_state.state_of(env)
        other.reset()  # of no seed, so that nothing is the same by chance
        env_state.restore(other, state)
        env_state.compare(other, obs)
        expected = rewards(env, 60, 1)
        assert rewards(other, 60, 1) == expected
        assert len(np.unique(expected)) > 1 or "Breakout" in env_id or "Seaquest" in env_id


@pytest.mark.parametrize(("env_id", "options"), KEEPING)
def test_a_copy_goes_on_among_fewer(env_id, options):
    three, alone = (make_vector_env(env_id, n, **options) for n in (3, 1))
    for env in (three, alone):
        env_state.prepare(env)
        env.reset(seed=5)
    actions = np.random.default_rng(0).integers(0, three.single_action_space.n, (80, 3))
    for row in actions[:50]:
        three.step(row)
    env_state.restore(alone, env_state.stacked([env_state.row(env_state.state_of(three), 2)]) | flags_of(three, 2))
    for row in actions[50:]:
        assert three.step(row)[1][2] == alone.step(row[2:])[1][0]


def flags_of(env, copy):
    state = env_state.state_of(env)
    return {name: state[name][copy : copy + 1] for name in env_state.FLAGS}


def test_noise_stays_around_a_pool(monkeypatch):
    envs_of = []

    class Pool(VectorEnv):
        def __init__(self, env_id, num_envs, **options):
            envs_of.append((env_id, num_envs, options))
            self.num_envs, self.metadata = num_envs, {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    monkeypatch.setattr("replaylab.envs.vectorize.PoolVectorEnv", Pool)
    env = make_vector_env("replaylab/NoisyRewards-v0", 2, env="Pong-v5", scale=3.0, backend="envpool", noop_max=1)
    assert isinstance(env, VectorNoisyRewards)
    assert env._noise.scale == 3.0
    assert envs_of == [("Pong-v5", 2, {"noop_max": 1})]


def test_an_environment_that_does_not_name_its_mode_is_refused():
    env = make_vector_env("FrozenLake-v1", 2)
    env.metadata = {}
    with pytest.raises(ConfigError, match="must declare what happens when an episode ends"):
        VectorNoisyRewards(env)


def test_an_invalid_limit_is_refused():
    with pytest.raises(ConfigError, match="max_episode_steps"):
        make_vector_env("replaylab/NoisyRewards-v0", 2, max_episode_steps="a")
