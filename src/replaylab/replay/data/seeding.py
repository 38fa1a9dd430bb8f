"""Random streams: one seed, spawned into a stream for each replica and purpose."""

from collections.abc import Mapping, Sequence
from enum import IntEnum, unique
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.errors import ConfigError
from replaylab.replay.data.forks import DrawLock

Seed = int | np.random.SeedSequence | Sequence[int] | None


@unique
class ReplayStreamKey(IntEnum):
    """What a buffer's random streams are for; the value is a stream's spawn key below the seed (of each replica).

    Who spawns streams of their own from the same seed, as `replaylab.learners` does, takes other keys; a further
    purpose of a buffer's takes one that is in neither list.

    Attributes:
        SAMPLING: Which steps a batch is made of.
        RESCORING: Which rows of a pool are kept (`LaBER`).
    """

    SAMPLING = 0
    RESCORING = 8


class PythonDraws:
    """The part of a buffer that draws in Python: a random generator for each replica, and the lock that guards them."""

    def __init__(self, core: _core.Replay, generators: list[np.random.Generator]) -> None:
        self.lock = DrawLock(core)
        self._generators = generators

    def generators(self) -> list[Any]:
        """Return the random generators' states, as JSON values."""
        return [generator.bit_generator.state for generator in self._generators]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what else is remembered, to be saved."""
        return {}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:  # noqa: ARG002
        """Take over what `arrays` and `generators` returned."""
        for generator, state in zip(self._generators, generators, strict=True):
            generator.bit_generator.state = state


def sampling_generators(
    seed: Seed, replicas: int | None, purpose: ReplayStreamKey = ReplayStreamKey.SAMPLING
) -> list[np.random.Generator]:
    """Return each replica's stream of a purpose as a NumPy generator, for samplers written in Python."""
    return [np.random.default_rng(_child(root, purpose)) for root in _roots(seed, replicas)]


def sampling_streams(seed: Seed, replicas: int | None) -> list[list[int]]:
    """Return four 64-bit words for each replica's sampling stream.

    A sequence of seeds gives replica r the stream a single buffer of seed r has; one seed is spawned into R.

    Raises:
        ConfigError: A seed is negative or no whole number, or their count is not R.
    """
    return [_words(_child(root, ReplayStreamKey.SAMPLING)) for root in _roots(seed, replicas)]


def _roots(seed: Seed, replicas: int | None) -> list[np.random.SeedSequence]:
    if getattr(seed, "shape", None) == ():  # one seed as an array
        seed = cast("Any", seed)[()]
    if isinstance(seed, np.random.SeedSequence) or seed is None or not isinstance(seed, (Sequence, np.ndarray)):
        root = seed if isinstance(seed, np.random.SeedSequence) else _root(seed)
        return [root] if replicas is None else [_child(root, r) for r in range(replicas)]
    if replicas is None or len(seed) != replicas:
        raise ConfigError(
            f"`seed` as a sequence must hold one seed for each replica (replicas={replicas}), "
            f"but has {len(seed)}; pass one int to seed them all"
        )
    return [_root(one) for one in seed]


def _root(seed: int | None) -> np.random.SeedSequence:
    try:
        if isinstance(seed, bool):
            raise TypeError
        return np.random.SeedSequence(seed)
    except (TypeError, ValueError):
        raise ConfigError(f"`seed` must be a whole number that is not negative, or None, but got {seed!r}") from None


def _child(root: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return the key-th child without counting it as spawned, so that the caller's object is unchanged."""
    return np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, key), pool_size=root.pool_size)


def _words(stream: np.random.SeedSequence) -> list[int]:
    return [int(word) for word in stream.generate_state(4, np.uint64)]
