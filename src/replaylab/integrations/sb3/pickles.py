"""Reading in what Stable-Baselines3's own buffers hold."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.save_util import load_from_pkl

from replaylab.errors import ConfigError
from replaylab.integrations.sb3.layout import Layout
from replaylab.replay import ReplayBuffer

BLOCK = 1024
"""Time steps that are taken at once."""


def blocks_of(source: Any, into: BaseBuffer) -> Iterator[dict[str, Any]]:
    """Yield what a buffer of the library's own holds, oldest first, as time steps (T, E, ...).

    Steps that the next one does not follow, though they ended no episode, are truncated.

    Raises:
        ConfigError: It does not fit the buffer that takes it.
    """
    own = _library_buffer(source, type(into))
    for name in ("observation_space", "action_space", "n_envs"):
        there, here = getattr(own, name), getattr(into, name)
        if there != here:
            raise ConfigError(f"`{name}` of the buffer that is read in must be {here}, but is {there}")
    yield from _blocks(own)


def read_pickle(source: Any, capacity: int | None = None, **options: Any) -> ReplayBuffer:
    """Return a plain `replaylab.ReplayBuffer` with what a buffer of the library's own holds, oldest first.

    Its fields are obs, action, reward, next_obs, terminated and truncated, as the library stores them: observations and
    actions have an axis where their space is Discrete. With one environment there is no E axis.

    Args:
        source: The buffer, or the path of its pickle. Pickles run code: read in none that you do not trust.
        capacity: C. None: as many steps as are there.
        **options: The constructor's; ``next_obs`` is "derived" unless it is given.

    Raises:
        ConfigError: It is no such buffer.
    """
    own = _library_buffer(source, ReplayBuffer)
    layout, envs = Layout(own.observation_space, own.action_space, None, "zero", False), own.n_envs
    capacity = max(own.size() * envs, envs) if capacity is None else capacity
    num_envs = None if envs == 1 else envs
    replay = ReplayBuffer(capacity, layout.fields, num_envs=num_envs, **({"next_obs": "derived"} | options))
    for steps in _blocks(own):
        length = len(steps["reward"])
        leading = (length,) if envs == 1 else (length, envs)
        obs, after = (layout.stored(steps[name], leading) for name in ("obs", "next_obs"))
        rest = {name: steps[name].reshape(leading) for name in ("reward", "terminated", "truncated")}
        replay.extend(obs=obs, next_obs=after, action=layout.action(steps["action"], leading), **rest)
    replay.end_episode()
    return replay


def _library_buffer(source: Any, ours: type) -> LibraryBuffer:
    own = source if isinstance(source, (BaseBuffer, ReplayBuffer)) else load_from_pkl(source)
    if isinstance(own, ours) or not isinstance(own, LibraryBuffer) or isinstance(vars(own).get("replay"), ReplayBuffer):
        raise ConfigError(f"a ReplayBuffer of stable-baselines3 can be read in, but got {type(own).__name__}")
    return own


def _blocks(own: LibraryBuffer) -> Iterator[dict[str, Any]]:
    places = (np.arange(own.buffer_size) + own.pos) % own.buffer_size if own.full else np.arange(own.pos)
    if own.full and own.optimize_memory_usage:
        places = places[1:]  # the oldest row's observation is overwritten with the newest next one
    for start in range(0, len(places), BLOCK):
        rows = places[start : start + BLOCK]
        yield _steps(own, rows, places[start + 1 : start + BLOCK + 1])


def _steps(own: LibraryBuffer, rows: Any, following: Any) -> dict[str, Any]:
    after = _rows(own.observations, (rows + 1) % own.buffer_size)
    if not own.optimize_memory_usage:
        after = _rows(own.next_observations, rows)
    ended, timeout = own.dones[rows] != 0, own.timeouts[rows] != 0
    truncated = ended & timeout
    obs = _rows(own.observations, following)
    leaves = zip(obs.values(), after.values(), strict=True) if isinstance(obs, dict) else [(obs, after)]
    for one, other in leaves:
        differ = (one != other[: len(following)]).reshape(len(following), own.n_envs, -1).any(2)
        truncated[: len(following)] |= differ & ~ended[: len(following)]
    return {
        "obs": _rows(own.observations, rows),
        "action": own.actions[rows],
        "reward": own.rewards[rows].astype(np.float32),
        "next_obs": after,
        "terminated": ended & ~timeout,
        "truncated": truncated,
    }


def _rows(values: Any, places: Any) -> Any:
    return {key: value[places] for key, value in values.items()} if isinstance(values, dict) else values[places]
