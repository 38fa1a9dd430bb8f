"""Many copies of one environment, stepped together."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from replaylab.arguments import checked, optional, takes, text, whole
from replaylab.envs.classic.acrobot import AcrobotVectorEnv
from replaylab.envs.classic.cartpole import CartPoleVectorEnv
from replaylab.envs.classic.mountain_car import MountainCarVectorEnv
from replaylab.envs.pixels.atari import is_atari, make_atari
from replaylab.envs.tabular.tables import ToyText
from replaylab.envs.tabular.transition_table import check_map
from replaylab.envs.vector.batched import autoreset
from replaylab.envs.vector.pool import ENDLESS, PoolVectorEnv
from replaylab.errors import ConfigError

CLASSIC = "gymnasium.envs.classic_control"
TOY = "gymnasium.envs.toy_text"
TABLES = ("taxi:TaxiEnv", "cliffwalking:CliffWalkingEnv", "frozen_lake:FrozenLakeEnv")
VECTORISED: dict[str, Any] = {
    f"{CLASSIC}.acrobot:AcrobotEnv": AcrobotVectorEnv,
    f"{CLASSIC}.cartpole:CartPoleEnv": CartPoleVectorEnv,
    f"{CLASSIC}.mountain_car:MountainCarEnv": MountainCarVectorEnv,
    **{entry: ToyText(entry) for entry in (f"{TOY}.{name}" for name in TABLES)},
}
"""Classes that step all copies in one call, by the entry point of the environment they are equal to."""

NOISY = "replaylab/NoisyRewards-v0"
NO_LIMIT = -1
"""What Gymnasium calls a time limit that is none."""


@takes(env_id=text, num_envs=whole(most=2**31 - 1), autoreset_mode=optional(autoreset))
def make_vector_env(
    env_id: str,
    num_envs: int,
    *,
    autoreset_mode: str | AutoresetMode | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """Return E copies of a registered Gymnasium environment, copy i depending on seed i alone.

    CartPole, Acrobot, MountainCar, Taxi, CliffWalking, FrozenLake and the library's own (``replaylab/...``) are stepped
    in one vectorised call, as is what is registered with a ``vector_entry_point`` alone (`BatchedEnv`), any other
    environment, and any that is to be rendered or is registered with wrappers, by Gymnasium's `SyncVectorEnv`.
    Atari games come from `make_atari`.

    Args:
        env_id: The registered name, such as "CartPole-v1" or "my_module:MyEnv-v0".
        num_envs: E.
        autoreset_mode: What happens when an episode ends; see Gymnasium's `AutoresetMode`. None: SAME_STEP, or what the
            backend does.
        backend: "envpool": step by EnvPool's threads, which reset in NEXT_STEP mode; None: as above.
        **kwargs: For the environment's constructor, or for `make_atari`. ``max_episode_steps`` is as in Gymnasium's
            `make`: it takes the place of the registered limit, −1 means none, and None leaves it as it is.

    Raises:
        ConfigError: No environment has this name, it cannot be made here, or `num_envs` is below 1.
        MissingExtraError: What the environment needs is not installed.

    Example:
        >>> env = make_vector_env("CartPole-v1", 3)
        >>> obs, infos = env.reset(seed=[7, 8, 9])
        >>> obs.shape
        (3, 4)
    """
    if autoreset_mode is None:
        autoreset_mode = AutoresetMode.SAME_STEP if backend is None else AutoresetMode.NEXT_STEP
    mode = AutoresetMode(autoreset_mode)
    if kwargs.get("max_episode_steps") is None:
        kwargs.pop("max_episode_steps", None)
    elif checked("max_episode_steps", kwargs["max_episode_steps"], whole(NO_LIMIT)) == 0:
        raise ConfigError(f"`max_episode_steps` must be at least 1, but got 0; {NO_LIMIT} stands for no limit")
    if backend is not None and env_id == NOISY:  # which makes the pool itself
        own: Any = {"vectorization_mode": "vector_entry_point", "autoreset_mode": mode, "backend": backend}
        return gym.make_vec(env_id, num_envs, **own, **kwargs)
    if backend is not None:
        return _pool(env_id, num_envs, mode, backend, kwargs)
    try:
        if is_atari(name := env_id.rpartition(":")[2]):
            _import_module_of(env_id)
            return SyncVectorEnv([lambda: make_atari(name, **_limited(kwargs))] * num_envs, autoreset_mode=mode)
        spec = spec_of(env_id)
        check_map(spec, kwargs)
        vectorised = VECTORISED.get(str(spec.entry_point))
        if spec.namespace == "replaylab" or spec.entry_point is None:
            vectorised = spec.vector_entry_point
        given = {**spec.kwargs, **kwargs}
        plain = given.get("render_mode") is None and not given.get("fickle_passenger") and not spec.additional_wrappers
        if vectorised is not None and plain:
            kwargs.pop("render_mode", None)
            kwargs = _limited(kwargs)
            spec = dataclasses.replace(spec, vector_entry_point=vectorised)
            return gym.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", autoreset_mode=mode, **kwargs)
        return gym.make_vec(name, num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise _unknown(env_id, error) from error


def make_single_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """Return one registered environment, of Gymnasium's `make`, or of `make_atari`: a copy of `make_vector_env`'s.

    Raises:
        gymnasium.error.Error: No environment has this name, or as Gymnasium raises it.
        ConfigError: It cannot be made here.
    """
    name = env_id.rpartition(":")[2]
    if is_atari(name):
        _import_module_of(env_id)
        return make_atari(name, **_limited(kwargs))
    env = gym.make(env_id, **kwargs)
    check_map(env.unwrapped.spec, {})
    return env


def whole_games(env_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's options for looking at a policy: Atari games whole, for unclipped rewards, without noise.

    What is for training alone is left out: clipped rewards, episodes that end with a life, and `NoisyRewards` around a
    game. Games of EnvPool's are told by their options; noise around them stays.

    Args:
        env_id: The environment.
        options: As in training.

    Example:
        >>> whole_games("ALE/Breakout-v5", {"clip_rewards": True, "noop_max": 0})
        {'clip_rewards': False, 'noop_max': 0, 'episodic_life': False}
    """
    name = env_id.rpartition(":")[2]
    game = str(options.get("env", "")).rpartition(":")[2] if name == NOISY else name
    if options.get("backend") is not None:
        return {**options, **dict.fromkeys(options.keys() & {"reward_clip", "episodic_life"}, False)}
    if not is_atari(game):
        return dict(options)
    whole = {**options, "clip_rewards": False, "episodic_life": False}
    return whole | {"scale": 0.0} if name == NOISY else whole


def spec_of(env_id: str) -> EnvSpec:
    """Return what is registered under a name, after the import of its module.

    Raises:
        ConfigError: Nothing is, or there is no such module.
    """
    try:
        _import_module_of(env_id)
        return gym.spec(env_id.rpartition(":")[2])
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise _unknown(env_id, error) from error


def _unknown(env_id: str, error: Exception) -> ConfigError:
    return ConfigError(f"`env_id` must name a Gymnasium environment, but got {env_id!r}: {error}")


def _import_module_of(env_id: str) -> None:
    if module := env_id.rpartition(":")[0]:
        importlib.import_module(module)


def _limited(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with Gymnasium's "no limit" as this library's classes have it."""
    return {**kwargs, "max_episode_steps": None} if kwargs.get("max_episode_steps") == NO_LIMIT else kwargs


def _pool(env_id: str, num_envs: int, mode: AutoresetMode, backend: str, kwargs: dict[str, Any]) -> PoolVectorEnv:
    if backend != "envpool":
        raise ConfigError(f"`backend` must be None or 'envpool', but got {backend!r}")
    if mode is not AutoresetMode.NEXT_STEP:
        raise ConfigError(
            f'the backend "envpool" resets in NEXT_STEP mode only, but got {mode.name}; pass autoreset_mode="NextStep"'
        )
    endless = {"max_episode_steps": ENDLESS} if kwargs.get("max_episode_steps") == NO_LIMIT else {}
    return PoolVectorEnv(env_id, num_envs, **kwargs | endless)
