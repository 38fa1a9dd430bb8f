"""Pickles of a buffer with its data or the folder of its snapshot, and the reading of Stable-Baselines3's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.save_util import load_from_pkl

from replaylab.arguments import checked, optional, place
from replaylab.episode_ends import terminated_and_truncated
from replaylab.errors import ConfigError, SnapshotError
from replaylab.files.folder import digest_of
from replaylab.integrations.sb3.layout import Layout, check_same
from replaylab.replay import ReplayBuffer
from replaylab.trees import map_leaves, same_rows, take

BLOCK = 1024
"""Number of time steps that are read at once."""


def blocks_of(source: Any, into: BaseBuffer) -> Iterator[dict[str, Any]]:
    """Yield the steps of one of the library's own buffers, oldest first, as time steps (T, E, ...).

    A step that ended no episode, but is not continued by the next stored step, is truncated.

    Raises:
        ConfigError: The source is not such a buffer, or does not fit `into`.
    """
    source_buffer = _library_buffer(source, type(into))
    names = ("observation_space", "action_space", "n_envs")
    check_same("read in", source_buffer, {name: getattr(into, name) for name in names})
    yield from _blocks(source_buffer)


def read_pickle(source: Any, capacity: int | None = None, **options: Any) -> ReplayBuffer:
    """Return a plain `replaylab.ReplayBuffer` with the steps of one of the library's own buffers, oldest first.

    Its fields are obs, action, reward, next_obs, terminated and truncated, as the library stores them: observations and
    actions have an axis where their space is Discrete. With one environment there is no E axis.

    Args:
        source: The buffer, or the path of its pickle. Pickles run code: read only pickles that you trust.
        capacity: C. None: the number of stored steps.
        **options: Options of `ReplayBuffer`; the default of ``next_obs`` is "derived".

    Raises:
        ConfigError: The source is not such a buffer.
    """
    source_buffer = _library_buffer(source, ReplayBuffer)
    layout, envs = (
        Layout(source_buffer.observation_space, source_buffer.action_space, None, "zero", False),
        source_buffer.n_envs,
    )
    capacity = max(source_buffer.size() * envs, envs) if capacity is None else capacity
    num_envs = None if envs == 1 else envs
    replay = ReplayBuffer(capacity, layout.fields, num_envs=num_envs, **({"next_obs": "derived"} | options))
    for steps in _blocks(source_buffer):
        length = len(steps["reward"])
        leading = (length,) if envs == 1 else (length, envs)
        obs, after = (layout.stored(name, steps[name], leading) for name in ("obs", "next_obs"))
        columns = {name: steps[name].reshape(leading) for name in ("reward", "terminated", "truncated")}
        replay.extend(obs=obs, next_obs=after, action=layout.action(steps["action"], leading), **columns)
    replay.end_episode()
    return replay


def _library_buffer(source: Any, excluded: type) -> LibraryBuffer:
    buffer = source if isinstance(source, (BaseBuffer, ReplayBuffer)) else unpickled(source)
    if (
        isinstance(buffer, excluded)
        or not isinstance(buffer, LibraryBuffer)
        or isinstance(vars(buffer).get("replay"), ReplayBuffer)
    ):
        raise ConfigError(f"a ReplayBuffer of stable-baselines3 can be read in, but got {type(buffer).__name__}")
    return buffer


def _blocks(buffer: LibraryBuffer) -> Iterator[dict[str, Any]]:
    places = (np.arange(buffer.buffer_size) + buffer.pos) % buffer.buffer_size if buffer.full else np.arange(buffer.pos)
    if buffer.full and buffer.optimize_memory_usage:
        places = places[1:]  # the oldest row's observation is overwritten with the newest next one
    for start in range(0, len(places), BLOCK):
        rows = places[start : start + BLOCK]
        yield _steps(buffer, rows, places[start + 1 : start + BLOCK + 1])


def _steps(buffer: LibraryBuffer, rows: Any, following: Any) -> dict[str, Any]:
    after = take(buffer.observations, (rows + 1) % buffer.buffer_size)
    if not buffer.optimize_memory_usage:
        after = take(buffer.next_observations, rows)
    ended = buffer.dones[rows] != 0
    terminated, truncated = terminated_and_truncated(ended, ended & (buffer.timeouts[rows] != 0))
    count = len(following)
    pairs = (take(buffer.observations, following), take(after, slice(count)))
    continues = same_rows(*(map_leaves(_merged, part) for part in pairs)).reshape(count, buffer.n_envs)
    truncated[:count] |= ~continues & ~ended[:count]
    return {
        "obs": take(buffer.observations, rows),
        "action": buffer.actions[rows],
        "reward": buffer.rewards[rows].astype(np.float32),
        "next_obs": after,
        "terminated": terminated,
        "truncated": truncated,
    }


def _merged(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return time steps (T, E, ...) as rows (T * E, ...)."""
    return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])


class Snapshots:
    """An optional folder of snapshots for pickles."""

    def __init__(self, folder: str | Path | None) -> None:
        path = checked("snapshots", folder, optional(place("a folder")))
        self._folder = None if path is None else Path(path).absolute()

    def packed(self, replay: ReplayBuffer) -> Any:
        """Return the content of a pickle; with a folder, save the buffer in it."""
        if self._folder is None:
            return replay
        replay.save(self._folder)
        options = {"sampler": replay.sampler, "transforms": replay.transforms}
        return {"folder": self._folder, "digest": digest_of(self._folder), "given": options}

    def unpacked(self, packed: Any) -> ReplayBuffer:
        """Return the buffer.

        Raises:
            SnapshotError: The folder has been saved to since.
        """
        if isinstance(packed, ReplayBuffer):
            return packed
        folder = packed["folder"]
        if digest_of(folder) != packed["digest"]:
            raise SnapshotError(
                f"{folder} holds another snapshot than the one that was pickled; load the latest pickle"
            )
        # Where an environment was reset since, ReplayLabBuffer sees it by its next observation, and ends the episode.
        return ReplayBuffer.load(folder, continue_episodes=True, **packed["given"])


def unpickled(path: Any, verbose: int = 0) -> Any:
    """Return what the library's `save_replay_buffer` wrote.

    Args:
        path: A path, to which the library adds ".pkl" if nothing is there; or an open file.
        verbose: The algorithm's.

    Raises:
        SnapshotError: `path` is a folder.
    """
    if isinstance(path, str | Path) and Path(path).is_dir():
        raise SnapshotError(
            f"{path} is a folder, but save_replay_buffer writes a file; pass the file, such as {path}.pkl, or load the "
            f'folder of a snapshot with replaylab.ReplayBuffer.load("{path}")'
        )
    return load_from_pkl(path, verbose)
