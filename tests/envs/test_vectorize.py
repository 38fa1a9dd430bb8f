import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.envs import TransitionTable, make_vector_env
from replaylab.errors import ConfigError


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_other_environments_run_in_gymnasiums_synchronous_one(mode):
    env = make_vector_env("Pendulum-v1", 3, autoreset_mode=mode, g=9.0)
    assert isinstance(env, SyncVectorEnv)
    assert env.metadata["autoreset_mode"] is mode
    assert env.get_attr("g") == (9.0,) * 3
    first = env.reset(seed=[1, 2, 3])[0]
    np.testing.assert_array_equal(first[2], make_vector_env("Pendulum-v1", 1).reset(seed=[3])[0][0])


def test_cartpole_v0_keeps_its_own_limit():
    assert make_vector_env("CartPole-v0", 1).max_episode_steps == 200


@pytest.mark.parametrize(("arguments", "limit"), [({}, 500), (None, 500), (600, 600), (-1, None)])
def test_time_limits_are_given_as_to_gymnasium(arguments, limit):
    options = arguments if arguments == {} else {"max_episode_steps": arguments}
    assert make_vector_env("CartPole-v1", 1, **options).max_episode_steps == limit
    if limit is not None:
        assert gym.make("CartPole-v1", **options).spec.max_episode_steps == limit
    noisy = make_vector_env("replaylab/NoisyRewards-v0", 1, env="CartPole-v1", **options)
    assert noisy.unwrapped.max_episode_steps == 500


def test_a_noisy_game_of_an_unknown_name_is_reported():
    with pytest.raises(ConfigError, match="must name a Gymnasium environment, but got 'CartPol-v1'"):
        make_vector_env("replaylab/NoisyRewards-v0", 1, env="CartPol-v1", max_episode_steps=9)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "CartPol-v1",
            r"`env_id` must name a Gymnasium environment, but got 'CartPol-v1': .*Did you mean: `CartPole`",
        ),
        ("CartPole-v9", r"but got 'CartPole-v9': Environment version `v9` .* doesn't exist"),
        ("no_such_module:Env-v0", r"but got 'no_such_module:Env-v0': No module named 'no_such_module'"),
    ],
)
def test_an_unknown_environment_is_reported(env_id, message):
    with pytest.raises(ConfigError, match=message):
        make_vector_env(env_id, 1)


def test_there_must_be_one_environment_or_more():
    with pytest.raises(ConfigError, match="`num_envs` must be at least 1, but got 0"):
        make_vector_env("CartPole-v1", 0)


def test_registered_with_wrappers_or_options_is_stepped_singly():
    cartpole = gym.spec("CartPole-v1").entry_point
    wrapped = gym.envs.registration.WrapperSpec("Clip", "gymnasium.wrappers:ClipReward", {"max_reward": 0.5})
    gym.register("ClippedPole-v0", cartpole, additional_wrappers=(wrapped,))
    gym.register("FickleTaxi-v0", "gymnasium.envs.toy_text.taxi:TaxiEnv", kwargs={"fickle_passenger": True})
    for env_id in ("ClippedPole-v0", "FickleTaxi-v0"):
        assert isinstance(make_vector_env(env_id, 2), SyncVectorEnv)
    env = make_vector_env("ClippedPole-v0", 2)
    env.reset(seed=0)
    assert env.step(np.array([0, 1]))[1].tolist() == [0.5, 0.5]


def test_seeds_of_copies_are_whole_numbers():
    env, same = (make_vector_env("CartPole-v1", 3) for _ in range(2))
    np.testing.assert_array_equal(env.reset(seed=np.arange(3))[0], same.reset(seed=[0, 1, 2])[0])
    for wrong in ([1.5, 2, 3], ["a", "b", "c"], [True, False, True], [-1, 0, 1]):
        with pytest.raises(ConfigError, match="`seed`"):
            env.reset(seed=wrong)


def of_frozen_lake(**options):
    return TransitionTable.of("FrozenLake-v1", **options)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_invalid_limits_are_refused(env_id):
    with pytest.raises(ConfigError, match="`max_episode_steps` must be at least 1, but got 0; -1 stands for"):
        make_vector_env(env_id, 2, max_episode_steps=0)
    with pytest.raises(ConfigError, match="`max_episode_steps` must be a whole number"):
        make_vector_env(env_id, 2, max_episode_steps=2.5)


@pytest.mark.parametrize("make", [lambda **options: make_vector_env("FrozenLake-v1", 2, **options), of_frozen_lake])
def test_invalid_options_of_frozen_lake_are_refused(make):
    with pytest.raises(ConfigError, match=r"`map_name` of FrozenLake-v1 must be one of 4x4, 8x8, but got '9x9'; or"):
        make(map_name="9x9")
    with pytest.raises(ConfigError, match=r"`success_rate` must be in \[0, 1\], but got 2.0"):
        make(success_rate=2.0)


@pytest.mark.filterwarnings("ignore:.*Using the latest versioned environment")  # Gymnasium's
@pytest.mark.parametrize("name", ["FrozenLake", "gymnasium.envs.toy_text:FrozenLake-v1"])
def test_tables_of_names_without_a_version_or_with_a_module(name):
    assert TransitionTable.of(name).probability.shape[:2] == (16, 4)
    with pytest.raises(ConfigError, match="`desc` of FrozenLake-v1 must be a map where `map_name` is None"):
        TransitionTable.of(name, map_name=None)
