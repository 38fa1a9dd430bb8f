"""Exact saving and restoring of environments as arrays, for checkpoints and for removing finished replicas.

The library's vector environments store their complete state in arrays. Other environments are stepped by Gymnasium's
`SyncVectorEnv`, where each copy remembers the random stream it was reset with and the actions since. To restore a copy,
it is reset with that stream and takes those actions again. That is exact for environments that draw only from their
`np_random` and keep no other state between episodes, as Gymnasium requires; the restored observation is compared with
the saved one. An environment or wrapper that does keep other state, such as the random stream of noise, returns it by
`own_state` and restores it by `restore_own`. Copies with their own `state` and `restore`, such as Atari games, are
saved by these.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper

from replaylab.envs.batched import packed, unpack
from replaylab.errors import ConfigError, SnapshotError
from replaylab.trees import leaves, map_leaves, take


class LastObsCopied(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that returns a copy of each episode's last observation.

    A vector environment in SAME_STEP mode keeps that observation while it resets the environment, which may write the
    next episode's first observation into the same array. Attributes that a wrapper lacks are the environment's.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and copy the observation if the episode ended."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return deepcopy(obs) if terminated or truncated else obs, reward, terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


Env = VectorEnv[Any, Any, Any]
State = dict[str, npt.NDArray[Any]]
FLAGS = ("_terminations", "_truncations", "_autoreset_envs")
"""Attributes of `SyncVectorEnv` with one entry for each copy."""


class Remembering(LastObsCopied):
    """Wrapper that remembers the last reset, the persistent state before it, and the actions since."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.stream = np.zeros(6, np.uint64)
        self.seed: int | None = None
        self.persistent: State = {}
        self.actions: list[npt.NDArray[Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and remember the random stream, the seed, and the persistent state before the reset."""
        random = self.env.unwrapped.np_random if seed is None else seeding.np_random(seed)[0]
        self.stream, self.seed, self.actions = packed([random])[0], seed, []
        self.persistent = persistent_state(self.env)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and remember the action."""
        self.actions.append(np.array(action))
        return super().step(action)

    def state(self) -> State:
        """Return the stream, the seed, the persistent state and the actions, copied."""
        space: Any = self.action_space
        actions = np.zeros((len(self.actions), *space.shape), space.dtype)
        actions[:] = self.actions
        return {"streams": self.stream.copy(), "actions": actions, "seeds": _digits(self.seed), **self.persistent}

    def restore(self, state: State) -> Any:
        """Reset with that stream or seed, take those actions, and return the last observation."""
        self.env.unwrapped.np_random = unpack(state["streams"][None])[0]
        restore_persistent(self.env, state)
        digits = state["seeds"]
        obs, _ = self.reset(seed=int.from_bytes(digits.tobytes(), "little") if digits.size else None)
        for action in state["actions"]:
            obs = self.step(action)[0]
        return obs


def _digits(seed: int | None) -> npt.NDArray[np.uint8]:
    """Return a seed of any size as little-endian bytes; empty for None."""
    length = 0 if seed is None else max(1, (seed.bit_length() + 7) // 8)
    return np.frombuffer((seed or 0).to_bytes(length, "little"), np.uint8).copy()


def _keepers(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield a prefix of names and the environment, for an environment and those it wraps that have `own_state`."""
    depth = 0
    while True:
        if callable(getattr(type(env), "own_state", None)):
            yield f"kept.{depth}.", env
        if env is env.unwrapped:
            return
        env, depth = env.env, depth + 1


def persistent_state(env: Any) -> State:
    """Return the state that an environment and its wrappers keep from one episode to the next."""
    return {prefix + name: array for prefix, keeper in _keepers(env) for name, array in keeper.own_state().items()}


def restore_persistent(env: Any, state: State) -> None:
    """Restore what `persistent_state` returned, where `state` has it."""
    for prefix, keeper in _keepers(env):
        if stored := {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}:
            keeper.restore_own(stored)


def prepare(env: Env) -> None:
    """Wrap the copies of a vector environment so that `state_of` works; call it before the first reset."""
    inner = _inner(env)
    if isinstance(inner, SyncVectorEnv):
        inner.envs = [
            env_copy if _saves_its_state(env_copy) else Remembering(_unwrapped(env_copy)) for env_copy in inner.envs
        ]


def _unwrapped(env_copy: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the environment inside `LastObsCopied`, whose work `Remembering` does too."""
    return env_copy.env if isinstance(env_copy, LastObsCopied) else env_copy


def possible(env: Env) -> bool:
    """Return whether the environment can continue exactly from a saved state."""
    inner = _inner(env)
    return _saves_its_state(inner) or isinstance(inner, SyncVectorEnv)


def check(env: Env, env_id: str, purpose: str) -> None:
    """Raise ConfigError unless the environment can continue exactly from a saved state."""
    if not possible(env):
        raise ConfigError(
            f"{purpose} needs an environment that can continue exactly from a saved state, but {env_id} has random "
            "streams that cannot be reached; leave it out, or, for a budget of episodes, train one seed at a time"
        )


def stacked(states: Sequence[State]) -> State:
    """Return the states of E copies as one: arrays (E, ...), padded with zeros where their lengths differ.

    The lengths are stored with the array, as ``NAME.lengths``, int (E,).
    """
    arrays: State = {}
    for name in states[0]:
        parts = [state[name] for state in states]
        if parts[0].ndim == 0 or len({len(part) for part in parts}) == 1:
            arrays[name] = np.stack(parts)
            continue
        lengths = np.array([len(part) for part in parts])
        arrays[name] = np.zeros((len(parts), lengths.max(), *parts[0].shape[1:]), parts[0].dtype)
        arrays[f"{name}.lengths"] = lengths
        for place, part in zip(arrays[name], parts, strict=True):
            place[: len(part)] = part
    return arrays


def row(state: State, i: int) -> State:
    """Return the state of copy i, as it was before `stacked`."""
    return {
        name: part[i, : state[f"{name}.lengths"][i]] if f"{name}.lengths" in state else part[i]
        for name, part in state.items()
        if name not in FLAGS and not name.endswith(".lengths")
    }


def state_of(env: Any) -> State:
    """Return the complete state of a prepared environment, every array (E, ...)."""
    if _wraps(env):
        return {**state_of(env.env), **env.own_state()}
    if _saves_its_state(env):
        state: State = env.state()
        return state
    flags = {name: getattr(env, name).copy() for name in FLAGS}
    return stacked([env_copy.state() for env_copy in env.envs]) | flags


def restore(env: Any, state: State) -> None:
    """Put a prepared environment into the state that `state_of` returned."""
    if _wraps(env):
        restore(env.env, state)
        env.restore_own(state)
        return
    if _saves_its_state(env):
        env.restore(state)
        return
    env.reset()
    for i, env_copy in enumerate(env.envs):
        env._env_obs[i] = env_copy.restore(row(state, i))
    for name in FLAGS:
        setattr(env, name, state[name].copy())


def compare(env: Env, obs: Any) -> None:
    """Raise SnapshotError unless a restored environment shows the saved observation."""
    for i, shown in enumerate(getattr(_inner(env), "_env_obs", [])):
        then = take(obs, i)
        if not all(leaves(map_leaves(_equal, shown, then))):
            raise SnapshotError(
                f"the environment did not return to its saved state: it shows {shown} but showed {then}. Its "
                "future depends on more than its own np_random and actions, so that it cannot continue exactly"
            )


def _wraps(env: Any) -> bool:
    """Whether an environment is a vector wrapper of the library, with its own state."""
    return isinstance(env, VectorWrapper) and hasattr(env, "own_state")


def _inner(env: Env) -> Any:
    """Return the environment inside the library's wrappers."""
    return _inner(env.env) if _wraps(env) else env  # type: ignore[attr-defined]


def _saves_its_state(env: Any) -> bool:
    """Whether an environment saves and restores its state itself, as the library's environments do."""
    return callable(getattr(env, "state", None)) and callable(getattr(env, "restore", None))


def _equal(left: Any, right: Any) -> bool:
    return np.array_equal(left, right, equal_nan=np.asarray(left).dtype.kind == "f")
