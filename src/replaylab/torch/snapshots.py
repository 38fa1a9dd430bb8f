"""Snapshots of a `DeviceReplay`: those of a `ReplayBuffer` with the same steps, and what only a device has.

Rows go through a `ReplayBuffer` in the host's memory, in both directions. The state has further arrays, named
``device.…``: leaves as integers, counters, flags and the random stream's seed.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from replaylab.errors import ReplayError, SnapshotError
from replaylab.files.folder import folder_of
from replaylab.replay import ReplayBuffer, persistence
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.snapshot import read_manifest
from replaylab.torch.device_parts import DeviceParts
from replaylab.torch.drawing.fixed_point import ONE, fixed_point
from replaylab.torch.drawing.philox import LOW
from replaylab.torch.drawing.samplers import ProportionalDraws, RecencyDraws
from replaylab.torch.rows.packing import LEFT
from replaylab.trees import flatten

Arrays = Mapping[str, npt.NDArray[Any]]

CHUNK = 2**16
"""Approximate number of steps that are copied at once."""


class _WithDrops(BufferConfig):
    """The configuration of a snapshot some of whose newest C steps are not stored any more."""

    kind = "DeviceReplay"


def save(parts: DeviceParts, path: str | os.PathLike[str], loop_state: Mapping[str, Any] | None) -> None:
    """Write a snapshot; see `DeviceReplay.save`."""
    host, options = _host_replay(parts), parts.options
    head, tail = int(parts.ring.head), int(parts.ring.tail)
    extra = {f"device.{name}": tensor.cpu().numpy().reshape(-1) for name, tensor in _state(parts).items()}
    extra["device.numbers"] = np.array([head, tail, parts.stream.seed & LOW, parts.stream.seed >> 32])
    if isinstance(parts.draws, ProportionalDraws):
        leaves = parts.draws.tree.sums[: options.config.capacity].cpu().numpy()
        extra["replica0.sampler.leaves"] = (leaves / ONE).astype(np.float32)
    about: dict[str, Any] = {"device": {"half": dict(options.half), "final_obs_share": options.final_obs_share}}
    if tail > max(0, head - options.config.capacity):  # `ReplayBuffer` would draw what was dropped
        about["kind"] = _WithDrops.kind
    persistence.save(host._parts, path, loop_state, about, extra)


def load(
    path: str | os.PathLike[str], check: Callable[[BufferConfig], None], make: Callable[..., Any]
) -> tuple[Any, Callable[[DeviceParts], None]]:
    """Return a new replay of the options of a snapshot, and what fills its parts.

    Args:
        path: The folder.
        check: Raises an error for options that a device does not have.
        make: Takes options by name and returns a replay.
    """
    folder = folder_of(path, "load")
    saved = read_manifest(folder)
    about, state = saved["about"], saved.arrays("state")
    kind = _WithDrops if about.get("kind") == _WithDrops.kind else BufferConfig
    host = persistence.load(ReplayBuffer, kind, path, {}, True)
    config = host._parts.config
    device = about.get("device", {})
    names = ("capacity", "fields", "num_envs", "sampler", "transforms", "next_obs", "autoreset", "episodes")
    try:
        if config.replicas is not None or config.count_replays or config.min_size > 1:
            raise SnapshotError(f"a DeviceReplay has no replicas, count_replays and min_size, but {folder} has some")
        check(config)
    except ReplayError as error:
        raise SnapshotError(f"the snapshot in {folder} cannot be loaded on a device: {error}") from error
    replay = make(**{name: getattr(config, name) for name in names}, **device)
    return replay, lambda parts: _fill(parts, host, state, folder)


def _state(parts: DeviceParts) -> dict[str, Tensor]:
    """Return the state that is written and read unchanged."""
    state = {"flags": parts.ring.flags, "counts": parts.counts, "draws": parts.stream.draws}
    if isinstance(parts.draws, RecencyDraws):
        state["call"] = parts.draws.call
    if isinstance(parts.draws, ProportionalDraws):
        state["largest_ever"] = parts.draws.largest_ever
        state["leaves"] = parts.draws.tree.sums[: parts.options.config.capacity]
    return state


def _host_replay(parts: DeviceParts) -> ReplayBuffer:
    """Return a `ReplayBuffer` that holds the same steps under the same ids."""
    config, ring = parts.options.config, parts.ring
    host = ReplayBuffer(**config.arguments(), seed=0)
    head = int(ring.head)
    first = max(0, head - config.capacity)
    start = first // config.capacity * config.capacity
    if start:  # ids continue from there, as after `clear`
        state = host._parts.core.state()
        state |= {"replica0.next_id": np.array([start]), "replica0.cleared": np.array([start, start])}
        host._parts.core.restore(state)
    if first > start:  # steps that are overwritten below
        blank = {path: np.zeros((first - start, *field.shape), field.dtype) for path, field in config.flat.items()}
        host.extend(**_arguments(parts, blank))
        host.end_episode()
    for low, high in _stretches(ring.flags.cpu().numpy(), first, head, parts.options.envs):
        ids = torch.arange(low, high, device=parts.options.device)
        columns = {path: value.cpu().numpy() for path, value in parts.untransformed.columns(ids).items()}
        host.extend(**_arguments(parts, columns))
        left = ring.flags[ids[-parts.options.envs :] % config.capacity] & LEFT != 0
        if bool(left.any()):
            host.end_episode(left.cpu().numpy() if config.num_envs is not None else None)
    return host


def _arguments(parts: DeviceParts, columns: Arrays) -> dict[str, Any]:
    r"""Return flat columns (T·E, \*shape) as the arguments of `extend`."""
    config = parts.options.config
    axes = (-1,) if config.num_envs is None else (-1, config.num_envs)
    shaped = [columns[path].reshape(*axes, *field.shape) for path, field in config.flat.items()]
    nested = parts.layout.unflatten(iter(shaped))
    return nested | ({"final_obs": nested["next_obs"]} if config.autoreset == "same_step" else {})


def _stretches(flags: npt.NDArray[np.uint8], first: int, head: int, envs: int) -> Iterator[tuple[int, int]]:
    """Yield ids in stretches that end where an environment was reset separately."""
    ids = np.arange(first, head)
    left = (flags[ids % len(flags)] & LEFT).reshape(-1, envs).any(axis=1)
    ends = first + envs * (np.flatnonzero(left) + 1)
    width = max(1, CHUNK // envs) * envs
    for low, high in zip([first, *ends], [*ends, head], strict=True):
        for start in range(int(low), int(high), width):
            yield start, min(start + width, int(high))


def _fill(parts: DeviceParts, host: ReplayBuffer, state: Arrays, folder: Path) -> None:
    """Store the steps of a host's replay, and restore the state of a device if the snapshot has one."""
    ring, config, envs = parts.ring, parts.options.config, parts.options.envs
    parts.loop_state = host.state
    ids, head = host.stored_ids()[0], host.next_id
    removed = "replica0.removed" in state
    if removed or head % envs or (host._parts.core.environments(ids) != ids % envs).any():
        raise SnapshotError(
            f"the ids in {folder} must follow each other environment by environment in every time step, but have gaps, "
            "as with `where`, `remove` or resetting steps that were left out; store its episodes in a new replay"
        )
    first = int(state["device.numbers"][1]) if "device.numbers" in state else head - len(ids)
    flags = state["device.flags"] if "device.numbers" in state else _left(state, ids, envs, config.capacity)
    for counter in (ring.head, ring.tail):
        counter.fill_(first)
    width = max(1, min(CHUNK // envs, ring.most_steps)) * envs
    for start in range(first, head, width):
        part = np.arange(start, min(start + width, head))
        columns = dict(flatten(host.get(part)))
        parts.store("extend", **_split(_arguments(parts, columns)), many=True)
        slots = torch.from_numpy(part % config.capacity).to(parts.options.device)
        left = torch.from_numpy(flags & LEFT).to(parts.options.device)[slots]
        ring.flags[slots] |= torch.where(ring.flags[slots] == 0, left, 0)
    if "device.numbers" in state:
        parts.stream.set_seed(int(state["device.numbers"][2]) | int(state["device.numbers"][3]) << 32)
        for name, tensor in _state(parts).items():
            if name != "leaves":
                tensor.copy_(torch.from_numpy(state[f"device.{name}"]).view(tensor.shape))
    else:
        counts = [int(state["replica0.samples"][0]), int(state["replica0.stale"][0]), 0]
        parts.counts.copy_(torch.tensor(counts))
    if isinstance(parts.draws, ProportionalDraws):
        parts.draws.load(*_leaves(state, parts.draws.most))


def _split(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `DeviceParts.store`."""
    return {"final_obs": arguments.pop("final_obs", None), "steps": arguments}


def _left(state: Arrays, ids: npt.NDArray[np.int64], envs: int, capacity: int) -> npt.NDArray[np.uint8]:
    """Return `LEFT` for the slots of steps that ended an episode of a host's replay, by flags or without."""
    left = np.zeros(capacity, np.uint8)
    episodes = state.get("replica0.episode_of")
    if episodes is not None and len(ids):
        inner = ids[:-envs]
        left[inner % capacity] = LEFT * (episodes[inner % capacity] != episodes[(inner + envs) % capacity])
        left[ids[-envs:] % capacity] = LEFT * (state["replica0.ended"][ids[-envs:] % envs] != 2)
    return left


def _leaves(state: Arrays, most: int) -> tuple[Tensor, Tensor]:
    """Return the leaves by slot, and the largest there ever was."""
    if "device.numbers" in state:
        return torch.from_numpy(state["device.leaves"]), torch.from_numpy(state["device.largest_ever"])[0]
    powers = torch.from_numpy(state["replica0.sampler.leaves"]).double()
    ever = torch.from_numpy(state.get("replica0.sampler.largest_ever", np.ones(1, np.float32))).double()
    leaves = fixed_point(powers, most)
    return leaves, torch.maximum(fixed_point(ever, most)[0], leaves.amax())
