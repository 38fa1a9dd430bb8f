"""Many copies of one environment, stepped together."""

import dataclasses
import importlib
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from replaylab.arguments import optional, takes, text, whole
from replaylab.envs.classic.acrobot import AcrobotVectorEnv
from replaylab.envs.classic.cartpole import CartPoleVectorEnv
from replaylab.envs.classic.mountain_car import MountainCarVectorEnv
from replaylab.envs.pixels.atari import is_atari, make_atari
from replaylab.envs.tabular.tables import ToyText
from replaylab.envs.vector.batched import autoreset
from replaylab.envs.vector.pool import PoolVectorEnv
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
    in one vectorised call, any other environment, and any that is to be rendered, by Gymnasium's `SyncVectorEnv`.
    Atari games come from `make_atari`.

    Args:
        env_id: The registered name, such as "CartPole-v1" or "my_module:MyEnv-v0".
        num_envs: E.
        autoreset_mode: What happens when an episode ends; see Gymnasium's `AutoresetMode`. None: SAME_STEP, or what the
            backend does.
        backend: "envpool": step by EnvPool's threads, which reset in NEXT_STEP mode; None: as above.
        **kwargs: For the environment's constructor, or for `make_atari`.

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
    if backend is not None:
        return _pool(env_id, num_envs, mode, backend, kwargs)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        if is_atari(name):
            return SyncVectorEnv([lambda: make_atari(name, **kwargs)] * num_envs, autoreset_mode=mode)
        spec = gym.spec(name)
        vectorised = VECTORISED.get(str(spec.entry_point))
        if spec.namespace == "replaylab":
            vectorised = spec.vector_entry_point
        if vectorised is not None and kwargs.get("render_mode") is None and not kwargs.get("fickle_passenger"):
            kwargs.pop("render_mode", None)
            spec = dataclasses.replace(spec, vector_entry_point=vectorised)
            return gym.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", autoreset_mode=mode, **kwargs)
        return gym.make_vec(name, num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(f"`env_id` must name a Gymnasium environment, but got {env_id!r}: {error}") from error


def _pool(env_id: str, num_envs: int, mode: AutoresetMode, backend: str, kwargs: dict[str, Any]) -> PoolVectorEnv:
    if backend != "envpool":
        raise ConfigError(f"`backend` must be None or 'envpool', but got {backend!r}")
    if mode is not AutoresetMode.NEXT_STEP:
        raise ConfigError(
            f'the backend "envpool" resets in NEXT_STEP mode only, but got {mode.name}; pass autoreset_mode="NextStep"'
        )
    return PoolVectorEnv(env_id, num_envs, **kwargs)
