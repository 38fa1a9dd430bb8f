"""Vector environments: many copies of a registered environment, stepped together."""

import dataclasses
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from replaylab.arguments import checked, optional, takes, text, whole
from replaylab.envs.acrobot import AcrobotVectorEnv
from replaylab.envs.atari import AtariVectorEnv, is_atari, make_atari
from replaylab.envs.batched import Array, autoreset, each_seed
from replaylab.envs.cartpole import CartPoleVectorEnv
from replaylab.envs.env_state import LastObsCopied
from replaylab.envs.mountain_car import MountainCarVectorEnv
from replaylab.envs.transition_table import ToyText, check_map, unknown_env
from replaylab.errors import ConfigError
from replaylab.extras import missing_extra

CLASSIC = "gymnasium.envs.classic_control"
TOY = "gymnasium.envs.toy_text"
TABLES = ("taxi:TaxiEnv", "cliffwalking:CliffWalkingEnv", "frozen_lake:FrozenLakeEnv")
VECTORISED: dict[str, Any] = {
    f"{CLASSIC}.acrobot:AcrobotEnv": AcrobotVectorEnv,
    f"{CLASSIC}.cartpole:CartPoleEnv": CartPoleVectorEnv,
    f"{CLASSIC}.mountain_car:MountainCarEnv": MountainCarVectorEnv,
    **{entry: ToyText(entry) for entry in (f"{TOY}.{name}" for name in TABLES)},
}
"""Vector classes that step all copies in one call, by the entry point of the environment that they reproduce."""

BACKENDS = ("ale", "envpool")
"""Other backends that can step copies."""

NOISY = "replaylab/NoisyRewards-v0"

ENDLESS = 2**31 - 1
"""EnvPool's value for no time limit."""

NO_LIMIT = -1
"""Gymnasium's value for no time limit."""


@takes(env_id=text, num_envs=whole(most=2**31 - 1), autoreset_mode=optional(autoreset))
def make_vector_env(
    env_id: str,
    num_envs: int,
    *,
    autoreset_mode: str | AutoresetMode | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """Return E copies of a registered Gymnasium environment; copy i depends only on seed i.

    CartPole, Acrobot, MountainCar, Taxi, CliffWalking, FrozenLake and the library's environments (``replaylab/...``)
    are stepped in one vectorised call, and so are environments registered with only a ``vector_entry_point``
    (`BatchedEnv`). All others, and those that are rendered or registered with wrappers, are stepped by Gymnasium's
    `SyncVectorEnv`. They may reuse their observation arrays: last observations are copied. Atari games are made by
    `make_atari`, or stepped by the emulator's threads (`AtariVectorEnv`).

    Args:
        env_id: The registered name, such as "CartPole-v1" or "my_module:MyEnv-v0".
        num_envs: E.
        autoreset_mode: How copies are reset when an episode ends; see Gymnasium's `AutoresetMode`. None: SAME_STEP, or
            the backend's mode.
        backend: "ale": step Atari games by the emulator's threads; "envpool": step by EnvPool's threads, which reset in
            NEXT_STEP mode; None: as above.
        **kwargs: For the environment's constructor, or for `make_atari`. ``max_episode_steps`` is as in Gymnasium's
            `make`: it replaces the registered limit, −1 means no limit, and None does not change it.

    Raises:
        ConfigError: No environment has this name, it cannot be made, or `num_envs` is below 1.
        MissingExtraError: A package that the environment needs is not installed.

    Example:
        >>> env = make_vector_env("CartPole-v1", 3)
        >>> obs, infos = env.reset(seed=[7, 8, 9])
        >>> obs.shape
        (3, 4)
    """
    if autoreset_mode is None:
        autoreset_mode = AutoresetMode.NEXT_STEP if backend == "envpool" else AutoresetMode.SAME_STEP
    mode = AutoresetMode(autoreset_mode)
    if kwargs.get("max_episode_steps") is None:
        kwargs.pop("max_episode_steps", None)
    elif checked("max_episode_steps", kwargs["max_episode_steps"], whole(NO_LIMIT)) == 0:
        raise ConfigError(f"`max_episode_steps` must be at least 1, but got 0; {NO_LIMIT} stands for no limit")
    if backend is not None and env_id == NOISY:  # which makes the pool itself
        vector_options: Any = {"vectorization_mode": "vector_entry_point", "autoreset_mode": mode, "backend": backend}
        return gym.make_vec(env_id, num_envs, **vector_options, **kwargs)
    if backend not in (None, *BACKENDS):
        raise ConfigError(f"`backend` must be None, {' or '.join(map(repr, BACKENDS))}, but got {backend!r}")
    if backend == "envpool":
        return _pool(env_id, num_envs, mode, kwargs)
    name = env_id.rpartition(":")[2]
    if backend == "ale" and not is_atari(name):
        raise ConfigError(f'the backend "ale" steps Atari games such as "ALE/Pong-v5", but got {env_id!r}')
    try:
        if is_atari(name):
            _import_module_of(env_id)
            if backend == "ale":
                return AtariVectorEnv(name, num_envs, autoreset_mode=mode, **_limited(kwargs))
            return SyncVectorEnv([lambda: make_atari(name, **_limited(kwargs))] * num_envs, autoreset_mode=mode)
        spec = spec_of(env_id)
        check_map(spec, kwargs)
        vectorised = VECTORISED.get(str(spec.entry_point))
        if spec.namespace == "replaylab" or spec.entry_point is None:
            vectorised = spec.vector_entry_point
        merged = {**spec.kwargs, **kwargs}
        plain = (
            merged.get("render_mode") is None and not merged.get("fickle_passenger") and not spec.additional_wrappers
        )
        if vectorised is not None and plain:
            kwargs.pop("render_mode", None)
            kwargs = _limited(kwargs)
            spec = dataclasses.replace(spec, vector_entry_point=vectorised)
            return gym.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", autoreset_mode=mode, **kwargs)
        return _stepped_one_by_one(name, num_envs, mode, kwargs)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise unknown_env("env_id", env_id, error) from error


def _stepped_one_by_one(
    name: str, num_envs: int, mode: AutoresetMode, kwargs: dict[str, Any]
) -> VectorEnv[Any, Any, Any]:
    """Return copies that Gymnasium steps; their `final_obs` stays true if an environment reuses its array."""
    env = gym.make_vec(name, num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)
    if mode is AutoresetMode.SAME_STEP and isinstance(env, SyncVectorEnv):
        env.envs = [LastObsCopied(env_copy) for env_copy in env.envs]
    return env


def make_single_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """Return one registered environment, made by Gymnasium's `make` or by `make_atari` as in `make_vector_env`.

    With the backend "ale" it is the game that `make_atari` makes with the same options.

    Raises:
        gymnasium.error.Error: No environment has this name, or Gymnasium cannot make it.
        ConfigError: The environment cannot be made.
    """
    name = env_id.rpartition(":")[2]
    if is_atari(name):
        _import_module_of(env_id)
        if kwargs.get("backend") == "ale":
            del kwargs["backend"]
        return make_atari(name, **_limited(kwargs))
    env = gym.make(env_id, **kwargs)
    check_map(env.unwrapped.spec, {})
    return env


def whole_games(env_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's options for showing a policy: complete Atari games with unclipped rewards and no noise.

    Options that are only for training are switched off: clipped rewards, episodes that end with a life, and the noise
    of `NoisyRewards` around a game. EnvPool's games are recognized by their options; noise around them stays.

    Args:
        env_id: The registered name.
        options: The options in training.

    Example:
        >>> whole_games("ALE/Breakout-v5", {"clip_rewards": True, "noop_max": 0})
        {'clip_rewards': False, 'noop_max': 0, 'episodic_life': False}
    """
    name = env_id.rpartition(":")[2]
    game = str(options.get("env", "")).rpartition(":")[2] if name == NOISY else name
    if options.get("backend") == "envpool":
        return {**options, **dict.fromkeys(options.keys() & {"reward_clip", "episodic_life"}, False)}
    if not is_atari(game):
        return dict(options)
    game_options = {**options, "clip_rewards": False, "episodic_life": False}
    return game_options | {"scale": 0.0} if name == NOISY else game_options


def constructor_options(env_id: str) -> list[str]:
    """Return the names of an environment's options, the arguments of its constructor; empty if they are unknown."""
    try:
        spec = spec_of(env_id)
        makers: list[Any] = [make_atari] if is_atari(spec.id) else [spec.entry_point, spec.vector_entry_point]
        return next(filter(None, (_named_arguments(maker) for maker in makers if maker is not None)), [])
    except Exception:  # of custom code, or a signature that Python cannot read
        return []


def _named_arguments(maker: Any) -> list[str]:
    """Return the names of the arguments of a function or class, or of what a text names, except for the copies'."""
    taken = signature(load_env_creator(maker) if isinstance(maker, str) else maker).parameters.values()
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [option.name for option in taken if option.kind in named and option.name not in ("env_id", "num_envs")]


def spec_of(env_id: str) -> EnvSpec:
    """Import the module of a registered name, if it names one, and return the registered spec.

    Raises:
        ConfigError: No environment has this name, or there is no such module.
    """
    try:
        _import_module_of(env_id)
        return gym.spec(env_id.rpartition(":")[2])
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise unknown_env("env_id", env_id, error) from error


def _import_module_of(env_id: str) -> None:
    if module := env_id.rpartition(":")[0]:
        importlib.import_module(module)


def _limited(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with Gymnasium's value for no time limit replaced by None, as in this library's classes."""
    return {**kwargs, "max_episode_steps": None} if kwargs.get("max_episode_steps") == NO_LIMIT else kwargs


class PoolVectorEnv(VectorEnv[Any, Array, Array]):
    """An EnvPool as a Gymnasium vector environment in NEXT_STEP mode; copy i depends only on seed i.

    It is the same learning problem as Gymnasium's (spaces, rewards, termination, time limits), but does not give the
    same numbers: an EnvPool draws its initial states from its own generators.

    Args:
        env_id: A name in both EnvPool and Gymnasium.
        num_envs: E, the number of copies.
        **kwargs: For `envpool.make`, such as max_episode_steps or num_threads.

    Raises:
        MissingExtraError: EnvPool is not installed.
        ConfigError: EnvPool has no such environment, or not with these options.
    """

    def __init__(self, env_id: str, num_envs: int, **kwargs: Any) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._make = {"task_id": env_id, "env_type": "gymnasium", "num_envs": num_envs, **kwargs}
        self._pool, spaces = self._new_pool(list(range(num_envs)))
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every copy.

        Args:
            seed: One for each copy, of which the lowest 31 bits are used; an int s means s, s + 1, ...; None continues
                with the current generators.
            options: Must be None: an EnvPool has no reset options.

        Raises:
            ConfigError: There are options, or only some copies have seeds.
        """
        if options:
            raise ConfigError(f"`options` of an EnvPool's reset must be left out, but got {options}")
        seeds = each_seed(seed, self.num_envs)
        if seed is not None:
            if None in seeds:
                raise ConfigError(f"`seed` must name a seed for each copy of an EnvPool, but got {seeds}")
            self._pool, _ = self._new_pool([int(copy_seed) % 2**31 for copy_seed in seeds if copy_seed is not None])
        return self._pool.reset()[0], {}

    @property
    def max_episode_steps(self) -> int | None:
        """Largest number of steps of an episode; None: no limit."""
        limit = int(self._pool.config["max_episode_steps"])
        return limit if limit < ENDLESS else None

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step every copy; those whose episode ended only start the next one."""
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(actions))
        return obs, reward, terminated, truncated, {}

    def close_extras(self) -> None:
        """End the pool's threads."""
        self._pool.close()

    def _new_pool(self, seeds: list[int]) -> tuple[Any, tuple[Any, Any]]:
        """Return a new pool, and its spaces, without a warning that their float32 bounds come as float64."""
        try:
            import envpool
        except ImportError as error:
            raise missing_extra('backend="envpool"', "envpool", "envpool") from error
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*precision lowered by casting")
                pool = envpool.make(**self._make, seed=seeds)
                return pool, (pool.observation_space, pool.action_space)
        except (AssertionError, TypeError, ValueError, KeyError, gym.error.Error) as error:
            raise ConfigError(f"EnvPool cannot make {self._make['task_id']!r}: {error}") from error


def _pool(env_id: str, num_envs: int, mode: AutoresetMode, kwargs: dict[str, Any]) -> PoolVectorEnv:
    if mode is not AutoresetMode.NEXT_STEP:
        raise ConfigError(
            f'the backend "envpool" resets in NEXT_STEP mode only, but got {mode.name}; pass autoreset_mode="NextStep"'
        )
    endless = {"max_episode_steps": ENDLESS} if kwargs.get("max_episode_steps") == NO_LIMIT else {}
    return PoolVectorEnv(env_id, num_envs, **kwargs | endless)


def step_limit(env: VectorEnv[Any, Any, Any]) -> int | None:
    """Return the largest number of steps of an episode of a vector environment; None if it declares no limit.

    Example:
        >>> from replaylab.envs import make_vector_env
        >>> step_limit(make_vector_env("CartPole-v1", 2)), step_limit(make_vector_env("Pendulum-v1", 2))
        (500, 200)
    """
    inner: Any = env.unwrapped
    limits = _limits(inner.envs[0]) if isinstance(inner, SyncVectorEnv) else _limit_of(inner)
    return max(limits, default=None)


def _limits(env: gym.Env[Any, Any]) -> Iterator[int]:
    """Yield the limits of an environment and its wrappers; an inner one may be in frames."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            yield env._max_episode_steps
        yield from _limit_of(env)
        env = env.env
    yield from _limit_of(env)


def _limit_of(env: Any) -> Iterator[int]:
    if isinstance(limit := getattr(env, "max_episode_steps", None), int):
        yield limit
