"""Environments that continue exactly: what decides their future as arrays, for checkpoints and for smaller populations.

The library's own vector environments keep all that decides their future in arrays. Any other one is stepped by
Gymnasium's `SyncVectorEnv`, where each copy remembers how its episode came about: the random stream it was reset
with, and the actions since. To put it back it is reset with that stream and takes those actions again. That is exact
for environments that draw from their own `np_random` alone and keep nothing else from one episode to the next, as
Gymnasium asks of them; what they show afterwards is compared with what they showed then. What an environment or a
wrapper does keep, as noise has a stream of its own, it tells by `own_state` and takes back by `restore_own`. Copies
with `state` and `restore` of their own, as Atari games, do all of it themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper

from replaylab.envs.vector.generators import packed, unpack
from replaylab.errors import ConfigError, SnapshotError
from replaylab.learners.api.protocols import State

Env = VectorEnv[Any, Any, Any]
FLAGS = ("_terminations", "_truncations", "_autoreset_envs")
"""What `SyncVectorEnv` itself remembers of each copy."""


class Remembering(gym.Wrapper[Any, Any, Any, Any]):
    """Remembers how the last reset was made, what was kept from episodes before it, and the actions since."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.stream = np.zeros(6, np.uint64)
        self.seed: int | None = None
        self.kept: State = {}
        self.actions: list[npt.NDArray[Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and remember the random stream, or the seed, and what was kept until then."""
        random = self.env.unwrapped.np_random if seed is None else seeding.np_random(seed)[0]
        self.stream, self.seed, self.kept, self.actions = packed([random])[0], seed, _kept(self.env), []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and remember the action."""
        self.actions.append(np.array(action))
        return self.env.step(action)

    def state(self) -> State:
        """Return the stream, the seed, what was kept and the actions, copied."""
        space: Any = self.action_space
        actions = np.zeros((len(self.actions), *space.shape), space.dtype)
        actions[:] = self.actions
        return {"streams": self.stream.copy(), "actions": actions, "seeds": _digits(self.seed), **self.kept}

    def restore(self, state: State) -> Any:
        """Reset with that stream or seed, take those actions, and return the last observation."""
        self.env.unwrapped.np_random = unpack(state["streams"][None])[0]
        _give_back(self.env, state)
        digits = state.get("seeds", _digits(None))  # checkpoints of earlier versions have none
        obs, _ = self.reset(seed=int.from_bytes(digits.tobytes(), "little") if digits.size else None)
        for action in state["actions"]:
            obs = self.step(action)[0]
        return obs


def _digits(seed: int | None) -> npt.NDArray[np.uint8]:
    """Return a seed of any size as its bytes, the least first; none for no seed."""
    length = 0 if seed is None else max(1, (seed.bit_length() + 7) // 8)
    return np.frombuffer((seed or 0).to_bytes(length, "little"), np.uint8).copy()


def _keepers(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield an environment and those it is around, by what their states are called, where they keep any."""
    depth = 0
    while True:
        if callable(getattr(type(env), "own_state", None)):
            yield f"kept.{depth}.", env
        if env is env.unwrapped:
            return
        env, depth = env.env, depth + 1


def _kept(env: Any) -> State:
    """Return what an environment and its wrappers keep from one episode to the next."""
    return {prefix + name: array for prefix, one in _keepers(env) for name, array in one.own_state().items()}


def _give_back(env: Any, state: State) -> None:
    """Let them take back what `_kept` returned, if that is there."""
    for prefix, one in _keepers(env):
        if own := {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}:
            one.restore_own(own)


def prepare(env: Env) -> None:
    """Let a vector environment remember what `state_of` needs; called before the first reset."""
    inner = _inner(env)
    if isinstance(inner, SyncVectorEnv):
        inner.envs = [one if _tells(one) else Remembering(one) for one in inner.envs]


def possible(env: Env) -> bool:
    """Return whether the environment can continue exactly from a saved state."""
    inner = _inner(env)
    return _tells(inner) or isinstance(inner, SyncVectorEnv)


def check(env: Env, env_id: str, purpose: str) -> None:
    """Raise ConfigError unless the environment can continue exactly from a saved state."""
    if not possible(env):
        raise ConfigError(
            f"{purpose} needs an environment that can continue exactly from a saved state, but {env_id} has random "
            "streams that cannot be reached; leave it out, or, for a budget of episodes, train one seed at a time"
        )


def stacked(states: Sequence[State]) -> State:
    """Return the states of E copies as one: arrays (E, ...), filled up with zeros where their lengths differ.

    The lengths are kept next to the array, as ``NAME.lengths``, int (E,).
    """
    whole: State = {}
    for name in states[0]:
        parts = [state[name] for state in states]
        if parts[0].ndim == 0 or len({len(part) for part in parts}) == 1:
            whole[name] = np.stack(parts)
            continue
        lengths = np.array([len(part) for part in parts])
        whole[name] = np.zeros((len(parts), lengths.max(), *parts[0].shape[1:]), parts[0].dtype)
        whole[f"{name}.lengths"] = lengths
        for place, part in zip(whole[name], parts, strict=True):
            place[: len(part)] = part
    return whole


def row(state: State, i: int) -> State:
    """Return the state of copy i, as it was before `stacked`."""
    return {
        name: part[i, : state[f"{name}.lengths"][i]] if f"{name}.lengths" in state else part[i]
        for name, part in state.items()
        if name not in FLAGS and not name.endswith(".lengths")
    }


def state_of(env: Any) -> State:
    """Return what decides the future of a prepared environment, every array (E, ...)."""
    if _wraps(env):
        return {**state_of(env.env), **env.own_state()}
    if _tells(env):
        state: State = env.state()
        return state
    flags = {name: getattr(env, name).copy() for name in FLAGS}
    return stacked([one.state() for one in env.envs]) | flags


def restore(env: Any, state: State) -> None:
    """Put a prepared environment into the state that `state_of` returned."""
    if _wraps(env):
        restore(env.env, state)
        env.restore_own(state)
        return
    if _tells(env):
        env.restore(state)
        return
    env.reset()
    for i, one in enumerate(env.envs):
        env._env_obs[i] = one.restore(row(state, i))
    for name in FLAGS:
        setattr(env, name, state[name].copy())


def compare(env: Env, obs: Any) -> None:
    """Raise SnapshotError unless a restored environment shows what it showed then."""
    for i, shown in enumerate(getattr(_inner(env), "_env_obs", [])):
        then = _at(obs, i)
        if not _equal(shown, then):
            raise SnapshotError(
                f"the environment did not return to its saved state: it shows {shown} but showed {then}. Its "
                "future depends on more than its own np_random and actions, so that it cannot continue exactly"
            )


def _wraps(env: Any) -> bool:
    """Whether it is a wrapper of the library's, with a state of its own beside what it wraps."""
    return isinstance(env, VectorWrapper) and hasattr(env, "own_state")


def _inner(env: Env) -> Any:
    """Return what the library's wrappers are around."""
    return _inner(env.env) if _wraps(env) else env  # type: ignore[attr-defined]


def _tells(env: Any) -> bool:
    """Whether an environment saves and restores its state itself, as the library's own do."""
    return callable(getattr(env, "state", None)) and callable(getattr(env, "restore", None))


def _at(obs: Any, i: int) -> Any:
    return {name: _at(part, i) for name, part in obs.items()} if isinstance(obs, dict) else obs[i]


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return all(_equal(part, right[name]) for name, part in left.items())
    return np.array_equal(left, right, equal_nan=np.asarray(left).dtype.kind == "f")
