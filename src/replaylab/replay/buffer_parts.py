"""The parts of a `ReplayBuffer` or `Priorities`, on which the functions that save and inspect them operate."""

import warnings
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.buffer_memory import check_memory
from replaylab.replay.data.fields import core_fields
from replaylab.replay.data.seeding import Seed, sampling_streams
from replaylab.replay.data.undelivered import BatchQueue
from replaylab.replay.samplers.engine import DrawEngine, UnfedDraws
from replaylab.replay.samplers.mixture import OfParts
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.storage import core_storage


@dataclass(eq=False, slots=True)
class BufferParts:
    """The parts of a buffer, all of which `restore` replaces at once.

    Attributes:
        config: The options.
        layout: The shapes of steps and batches.
        core: The compiled part: rows, episodes, priorities.
        engine: Draws batches and takes feedback.
        saved: Folder → token of the snapshot in it that this buffer equals or was continued from.
        ahead: Batches that were drawn ahead and not delivered yet.
        drawer: The thread that draws ahead (`prefetch.Drawer`), while there is one.
        savers: The threads that are saving the buffer.
        loop_state: The state of the training loop in the snapshot that was loaded; None: there was none.
    """

    config: BufferConfig
    layout: BufferLayout
    core: _core.Replay
    engine: DrawEngine
    saved: dict[Path, str] = field(default_factory=dict)
    ahead: list[BatchQueue] = field(default_factory=list)
    drawer: Any = None
    savers: set[int] = field(default_factory=set)
    loop_state: Any = None

    @classmethod
    def of(cls, config: BufferConfig, seed: Seed) -> "BufferParts":
        """Return the parts of a new, empty buffer.

        Raises:
            OverSizeError: The buffer would not fit into this machine's memory.
            StorageError: The storage cannot be created, or holds rows of another declaration.
        """
        layout, core = BufferLayout(config), make_core(config, seed)
        engine = config.sampler.engine(core, layout, seed)
        engine.unfed = _unfed_draws(config.sampler)
        return cls(config, layout, core, engine)

    @property
    def size(self) -> Any:
        """Steps stored now: int, or int64 ``[R]``."""
        return self.of_replicas(self.core.counts()[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held now for rows, priorities and episodes, of all replicas."""
        return self.core.nbytes + self.engine.nbytes

    @property
    def stores_in_core(self) -> bool:
        """Whether `add` may pass its arguments directly to the core."""
        return self.layout.plain and type(self.engine).store is DrawEngine.store

    def of_replicas(self, counts: list[int]) -> Any:
        """Return a count of each replica as the public properties do: int, or int64 ``[R]``."""
        return counts[0] if self.config.replicas is None else np.array(counts, np.int64)


class Buffer(Protocol):
    """A `ReplayBuffer` or a `Priorities`, as the functions beside it use it."""

    _parts: BufferParts

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset; see `ReplayBuffer.end_episode`."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot; see `ReplayBuffer.save`."""


def _unfed_draws(sampler: Sampler) -> UnfedDraws | None:
    """Return the count of draws without feedback; None if the draws do not depend on feedback."""
    parts = sampler.parts if isinstance(sampler, OfParts) else (sampler,)
    if not any(part.wants_feedback and getattr(part, "alpha", 1.0) != 0.0 for part in parts):
        return None
    priorities = sampler.core_config().priorities if sampler.keeps_priorities else None
    return UnfedDraws(type(sampler).__name__, priorities)


def make_core(config: BufferConfig, seed: Seed) -> _core.Replay:
    """Return the compiled part of a buffer, empty."""
    check_memory(config)
    axes = {"num_envs": config.num_envs, "replicas": config.replicas}
    core = _core.Replay(
        core_fields(config.flat),
        config.capacity,
        -1 if config.replicas is None else config.replicas,
        -1 if config.num_envs is None else config.num_envs,
        config.sampler.core_config(),
        sampling_streams(seed, config.replicas),
        config.autoreset == "next_step",
        config.core_transforms,
        config.retention.core_kind,
        config.count_replays,
        config.min_size,
        None if config.storage is None else core_storage(config.storage, config.flat, config.capacity, **axes),
        config.rows_elsewhere,
    )
    if core.storage_was_unflushed:
        warnings.warn(
            f"the machine stopped after the last flush() of {config.storage}; nothing is lost if it was shut down "
            "in an orderly way, but after a power cut some rows may be damaged: then remove the file",
            stacklevel=5,
        )
    return core
