"""The buffers whose files are mutated: small, and between them every part that a snapshot or a file of rows has."""

import numpy as np

from replaylab.replay import (
    Aged,
    CustomSampler,
    EpisodeEnds,
    Field,
    FrameStack,
    FreshFirst,
    Geometric,
    Greedy,
    MemoryMap,
    Mixture,
    NStep,
    Prioritized,
    RankBased,
    Recency,
    ReplayBuffer,
    Reservoir,
    Sequence,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.research import Permuted

FLAGS = {name: Field((), bool) for name in ("terminated", "truncated")}
PLAIN = {"obs": Field((2,), np.uint8), "reward": Field(), "next_obs": Field((2,), np.uint8)} | FLAGS
NESTED = {"obs": {"a": Field(), 1: (Field((2,), np.int64),)}} | FLAGS
SCREENS = {
    "obs": Field((8, 8), np.uint8, compressed=True),
    "next_obs": Field((8, 8), np.uint8, compressed=True),
} | FLAGS


class Own(CustomSampler):
    """A sampler in Python, whose records are in the snapshot, too."""

    def distribution(self, view, batch_size):
        wanted = 1.0 / (1.0 + view.replay_counts)
        return wanted / wanted.sum()

    def __eq__(self, other):
        return type(other) is Own

    __hash__ = CustomSampler.__hash__


def _buffer(fields=PLAIN, capacity=9, **options):
    return ReplayBuffer(capacity, fields, **{"seed": 1, **options})


SNAPSHOTS = {
    "plain": lambda: _buffer(sampler=Prioritized(beta=0.4), count_replays=True),
    "environments": lambda: _buffer(num_envs=2, transforms=(NStep(2), FrameStack(2)), sampler=RankBased(beta=0.4)),
    "replicas": lambda: _buffer(NESTED, replicas=2, num_envs=2, autoreset="next_step", sampler=ShuffledEpochs()),
    "derived": lambda: _buffer(next_obs="derived", num_envs=2, sampler=Permuted(beta=0.4)),
    "compressed": lambda: _buffer(SCREENS, next_obs="derived", num_envs=2, transforms=(FrameStack(2),)),
    "reservoir": lambda: _buffer(retention=Reservoir(), sampler=Greedy()),
    "sequences": lambda: _buffer(num_envs=3, transforms=(Sequence(4, overlap=2, burn_in=1),), sampler=SlidingWindow()),
    "mixture": lambda: _buffer(
        sampler=Mixture((Prioritized(beta=0.4), ShuffledEpochs(), Recency(0.9, burst=5), Geometric(0.1)))
    ),
    "episodes": lambda: _buffer(sampler=EpisodeEnds(), num_envs=2),
    "aged": lambda: _buffer(
        PLAIN | {"version": Field((), np.float64)},
        sampler=Aged(Prioritized(beta=0.4), 3.0, floor=0.1, window=7, clock="version"),
    ),
    "fresh": lambda: _buffer(sampler=FreshFirst(Aged(Uniform(), half_life=2.0)), replicas=2),
    "own": lambda: _buffer(sampler=Own(), num_envs=2),
    "loop": lambda: _buffer(),
}
"""Buffers that are saved, by name."""

STATES = {
    "loop": {
        "weights": np.arange(6.0).reshape(2, 3),
        "rng": np.random.default_rng(0).bit_generator.state,
        "nested": {0: (None, True, float("nan"), np.float32(1.0)), "text": ["x", b"bytes", 2**70]},
    }
}
"""States of training loops that are saved with some of them. Tensors, whose library takes long to import, are tested in
tests/replay/test_loop_state.py."""


def storage(path, **options):
    """Return where the rows of a fuzzed file are."""
    return MemoryMap(path, writers=2, **options)


STORAGES = {
    "plain": lambda path, **options: _buffer(storage=storage(path, **options), sampler=Prioritized(beta=0.4)),
    "environments": lambda path, **options: _buffer(
        num_envs=2, replicas=2, storage=storage(path, **options), transforms=(NStep(2),), sampler=Uniform()
    ),
}
"""Buffers whose rows are in a file, by name."""


STEPS = {}


def steps(buffer, rng, count=1):
    """Return `count` time steps of random values for a buffer; some few are drawn, and used again and again."""
    key = (count, buffer.replicas, buffer.num_envs, *buffer._parts.config.flat, int(rng.integers(0, 8)))
    if key not in STEPS:
        STEPS[key] = _drawn(buffer, np.random.default_rng(key[-1]), count)
    return STEPS[key]


def _drawn(buffer, rng, count):
    lead = tuple(n for n in (buffer.replicas, count, buffer.num_envs) if n is not None)

    def values(field, path):
        if isinstance(field, dict):
            return {key: values(child, key) for key, child in field.items()}
        if isinstance(field, tuple):
            return tuple(values(child, path) for child in field)
        if path == "version":  # of the policy, which never decreases
            return np.zeros(lead)
        if field.dtype == bool:
            return rng.random(lead) < 0.2
        return rng.integers(0, 5, (*lead, *field.shape)).astype(field.dtype)

    return {name: values(field, name) for name, field in buffer.fields.items()}


def fill(buffer, rng, count=14):
    """Add steps, and draw and feed back in between."""
    for _ in range(count):
        buffer.extend(**steps(buffer, rng))
        if len(buffer) > 4:
            batch = buffer.sample(4)
            buffer.update_priorities(batch.id, rng.random(batch.id.shape))


def exercise(buffer, rng):
    """Yield calls that use everything a buffer has, one after another."""

    def sample():
        batch = buffer.sample(4)
        buffer.update_priorities(batch.id, rng.random(batch.id.shape))
        if buffer.sampler.has_closed_form:
            buffer.probabilities(batch.id, batch_size=4)

    def look():
        newest = np.asarray(buffer._parts.core.counts()[1]) - 1
        ids = newest[:, None] - np.arange(min(4, max(1, len(buffer))))
        buffer.as_batch(ids if buffer.replicas is not None else ids[0])

    yield sample
    yield look
    yield lambda: buffer.extend(**steps(buffer, rng, 3))
    yield sample
    yield buffer.end_episode
    yield lambda: buffer.extend(**steps(buffer, rng, 12))
    yield sample
    yield lambda: (len(buffer), repr(buffer), buffer.nbytes)


__all__ = ["SNAPSHOTS", "STORAGES", "exercise", "fill", "steps"]
