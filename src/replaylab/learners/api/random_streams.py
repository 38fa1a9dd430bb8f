"""Random streams by purpose: changing one part of an experiment leaves the draws of others unchanged."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, unique

import numpy as np

from replaylab.arguments import instance, seed_number, takes
from replaylab.errors import ConfigError
from replaylab.replay import ReplayStreamKey


@unique
class Stream(IntEnum):
    """Purpose of a stream; the value is its spawn key below the replica's seed.

    Two runs of one seed that differ in their sampler start from the same weights and the same episodes and
    explore with the same draws: seeds are paired across strategies. `SAMPLING` and, for `LaBER`,
    `RESCORING` are drawn by the `ReplayBuffer`, which spawns them from the same seed by the same keys.
    """

    SAMPLING = ReplayStreamKey.SAMPLING
    ENV_RESET = 1
    INITIAL_WEIGHTS = 2
    EXPLORATION = 3
    EVALUATION = 4
    NEXT_ACTION = 5
    HELD_OUT = 6
    MEASURES = 7
    RESCORING = ReplayStreamKey.RESCORING
    MODULE_DRAWS = 9


def sequence(seed: int, stream: Stream, *further: int) -> np.random.SeedSequence:
    """Return the seed's stream, or with `further` keys a numbered part of it.

    Raises:
        ConfigError: The seed is negative or no whole number.
    """
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"a seed must be a whole number that is not negative, but got {seed!r}")
    return np.random.SeedSequence(int(seed), spawn_key=(int(stream), *further))


@takes(seed=seed_number, stream=instance(Stream, "a Stream"))
def generator(seed: int, stream: Stream, *further: int) -> np.random.Generator:
    """Return a generator at the start of the seed's stream, or of a numbered part of it."""
    return np.random.Generator(np.random.PCG64(sequence(seed, stream, *further)))


def numbers(seed: int, stream: Stream, count: int, *further: int) -> list[int]:
    """Return whole numbers below 2³² from the stream, to seed environments with."""
    return [int(number) for number in sequence(seed, stream, *further).generate_state(count)]


@contextmanager
def global_streams_kept() -> Iterator[None]:
    """Restore the global random streams of Python, NumPy and PyTorch on exit, on every device."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - an algorithm's own
    drawn = None if torch is None else torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(drawn)
        if torch is not None and devices:
            torch.cuda.set_rng_state_all(devices)
