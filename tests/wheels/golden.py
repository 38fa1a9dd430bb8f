"""Draws of every sampler, recorded: each processor and each wheel must make the same ones.

`draws.txt` holds cases, a few lines each: a sampler as the core takes it, its parts, transforms, and what is drawn: the
first ids, and a checksum of ten batches with feedback in between. `python -m tests.wheels.golden` records them again;
`draws.cpp` makes them from the core alone.
"""

from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np

from replaylab import _core
from replaylab.replay import (
    LAP,
    Aged,
    Combined,
    EpisodeEnds,
    FreshFirst,
    Geometric,
    Greedy,
    Mixture,
    Online,
    Prioritized,
    Queue,
    RankBased,
    Recency,
    ReLo,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.research import AntiPrioritized, BinnedPrioritized, Blocks, Permuted

FILE = Path(__file__).parent / "draws.txt"
CAPACITY, REPLICAS, ENVS, STEPS, BATCH, TURNS = 700, 2, 2, 500, 64, 10
STREAM = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
FIELDS = {
    "obs.x": ((3,), np.float32),
    "obs.desired_goal": ((), np.float32),
    "action": ((), np.int64),
    "reward": ((), np.float32),
    "next_obs.achieved_goal": ((), np.float32),
    "next_obs.desired_goal": ((), np.float32),
    "terminated": ((), bool),
    "truncated": ((), bool),
}
SAMPLERS = [
    *(Online(), SlidingWindow(), Queue(), Uniform(), Uniform(replace=False), Combined(), Combined(mode="replace")),
    *(Uniform(stratified=True), Prioritized(stratified=False)),
    *(Combined(distinct=True), Combined(mode="replace", distinct=True), Prioritized(replace=False)),
    *(Recency(eta=0.99, least=50, burst=4), Geometric(expected_age=100.0), Blocks(length=4)),
    *(ShuffledEpochs(), Prioritized(), Prioritized(normalize="batch"), LAP(), ReLo()),
    *(AntiPrioritized(), Permuted(), Permuted(bins=4), RankBased(), Greedy()),
    Mixture((Uniform(), Prioritized(), RankBased()), (1, 2, 1)),
]
N_STEP = {"n_step": 3, "gamma": 0.97}
TRANSFORMS = [
    (Prioritized(), N_STEP),
    (Uniform(), N_STEP | {"strategy": 1, "share": 0.8}),
    (Prioritized(block_length=4), {"length": 5, "stride": 4, "burn_in": 2}),
    (EpisodeEnds(steps=2, truncated=True), {}),  # the share is the scheduled number
    (BinnedPrioritized(between=0.7, within=0.3), {}),
    (Aged(Prioritized(), half_life=9.0), {}),
    (Aged(Prioritized(stratified=False), half_life=40.0, floor=0.25, window=500), {}),
    (Aged(Uniform(), half_life=100.0), {}),
    (FreshFirst(Prioritized()), {}),
]


def steps(first, count):
    """Return the values of so many time steps, as [R][T][E]; each is exact in any arithmetic."""
    r, t, e = np.meshgrid(np.arange(REPLICAS), np.arange(first, first + count), np.arange(ENVS), indexing="ij")
    n = t * ENVS + e
    return {
        "obs.x": ((n % 97) / 4)[..., None] + r[..., None] + np.arange(3),
        "obs.desired_goal": e,
        "action": n % 5,
        "reward": ((7 * n + 3 * r) % 11 - 5) / 8,
        "next_obs.achieved_goal": n * 13 % 29 / 2,
        "next_obs.desired_goal": e,
        "terminated": (t + e) % 23 == 22,
        "truncated": (t + 2 * e) % 31 == 30,
    }


def add(core, first, count):
    core.extend_steps(**{name: value.astype(FIELDS[name][1]) for name, value in steps(first, count).items()})


def checksum(arrays, value=0xCBF29CE484222325):
    """Continue with the 64-bit hash of Fowler, Noll and Vo."""
    for array in arrays:
        for byte in np.ascontiguousarray(array).tobytes():
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def draws(sampler, transforms):
    """Return what a case draws, as its last line has it."""
    config = _core.TransformConfig()
    config.partners = [-1] * len(FIELDS)
    for name, value in transforms.items():
        setattr(config, name, value)
    if "n_step" in transforms:
        config.last = [n for n, name in enumerate(FIELDS) if name in ("terminated", "truncated") or "next_" in name]
    if "strategy" in transforms:
        config.achieved, config.desired = [4, 4], [1, 5]
    kind, options, parts = sampler
    config_of_sampler = _core.SamplerConfig(kind, options, [_core.SamplerConfig(*part) for part in parts])
    fields = [(name, list(shape), np.dtype(dtype), False) for name, (shape, dtype) in FIELDS.items()]
    streams = [[replica + 1, *STREAM] for replica in range(REPLICAS)]
    fifo = _core.Retention.FIFO
    core = _core.Replay(
        fields, CAPACITY, REPLICAS, ENVS, config_of_sampler, streams, False, config, fifo, False, 1, None, False
    )
    add(core, 0, STEPS)
    scheduled = [0.9] * max(1, len(parts))
    seen, first = [], []
    for turn in range(TURNS):
        batch = core.sample(BATCH, scheduled, None)
        seen += batch.values()
        first = first or [str(id_) for id_ in batch["id"].ravel()[:8]]
        core.update(batch["id"], batch["id"] * 37 % 101 / 64 - 0.75, True)
        add(core, STEPS + 3 * turn, 3)
    newest = np.array([np.arange(after - BATCH, after) for after in core.counts()[1]])
    with suppress(ValueError):  # no closed form
        seen.append(core.probabilities(newest, BATCH, scheduled))
    return " ".join(["draws", *first, f"{checksum(seen):016x}"])


def cases():
    """Yield the sampler and the transforms of each case of the file, and its last line."""
    sampler, transforms = None, {}
    for line in FILE.read_text().splitlines():
        what, *words = line.split()
        if what in ("sampler", "part"):
            options = {name: float(value) for name, value in (word.split("=") for word in words[1:])}
            if what == "sampler":
                sampler, transforms = (words[0], options, []), {}
            else:
                sampler[2].append((words[0], options))
        elif what == "transform":
            pairs = (word.split("=") for word in words)
            transforms = {name: float(value) if "." in value else int(value) for name, value in pairs}
        elif what == "draws":
            yield sampler, transforms, line


def as_the_core_takes_it(sampler):
    """Return a sampler's kind, options and parts."""
    with patch.object(
        _core, "SamplerConfig", lambda kind, options=(), parts=(), **_: (kind, dict(options), list(parts))
    ):
        return sampler.core_config()


def written(what, words, pairs):
    return " ".join([what, *words, *(f"{name}={value + 0!r}" for name, value in pairs.items())])  # flags as 0 and 1


def record():
    """Write the file again."""
    lines = []
    for sampler, transforms in [*((sampler, {}) for sampler in SAMPLERS), *TRANSFORMS]:
        kind, options, parts = taken = as_the_core_takes_it(sampler)
        lines.append(written("sampler", [kind], options))
        lines += [written("part", [part[0]], part[1]) for part in parts]
        lines += [written("transform", [], transforms)] if transforms else []
        lines.append(draws((kind, options, [part[:2] for part in parts]), transforms))
        assert taken[2] is parts
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record()
