"""Random streams: one seed, spawned into a stream for each replica and purpose."""

from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Any, cast

import numpy as np

from replaylab.errors import ConfigError

Seed = int | np.random.SeedSequence | Sequence[int] | None


@unique
class ReplayStreamKey(IntEnum):
    """Purposes of a buffer's random streams; the value is a stream's spawn key below the seed (of each replica).

    If you spawn your own streams from the same seed, as `replaylab.learners` does, use other keys. A new purpose of a
    buffer needs a key that is in neither list.

    Attributes:
        SAMPLING: Which steps a batch is made of.
        RESCORING: Which rows of a pool are kept (`LaBER`).
    """

    SAMPLING = 0
    RESCORING = 8


def sampling_generators(
    seed: Seed, replicas: int | None, purpose: ReplayStreamKey = ReplayStreamKey.SAMPLING
) -> list[np.random.Generator]:
    """Return each replica's stream of a purpose as a NumPy generator, for samplers written in Python."""
    return [np.random.default_rng(_child(root, purpose)) for root in separate_seeds(seed, replicas)]


def sampling_streams(seed: Seed, replicas: int | None) -> list[list[int]]:
    """Return four 64-bit words for each replica's sampling stream.

    A sequence of seeds gives replica r the stream a single buffer of seed r has; one seed is spawned into R.

    Raises:
        ConfigError: A seed is negative or no whole number, or their count is not R.
    """
    streams = (_child(root, ReplayStreamKey.SAMPLING) for root in separate_seeds(seed, replicas))
    return [stream.generate_state(4, np.uint64).tolist() for stream in streams]


def separate_seeds(seed: Seed, replicas: int | None) -> list[np.random.SeedSequence]:
    """Return independent seeds from one seed, or the seeds of a sequence: as many as replicas, None: one.

    Raises:
        ConfigError: A seed is negative or no whole number, or their count is not R.
    """
    if getattr(seed, "shape", None) == ():  # a single seed as an array
        seed = cast("Any", seed)[()]
    if isinstance(seed, np.random.SeedSequence) or seed is None or not isinstance(seed, (Sequence, np.ndarray)):
        root = seed if isinstance(seed, np.random.SeedSequence) else _root(seed)
        return [root] if replicas is None else [_child(root, r) for r in range(replicas)]
    if replicas is None or len(seed) != replicas:
        raise ConfigError(
            f"`seed` as a sequence must hold one seed for each replica (replicas={replicas}), "
            f"but has {len(seed)}; pass one int to seed them all"
        )
    return [_root(replica_seed) for replica_seed in seed]


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
