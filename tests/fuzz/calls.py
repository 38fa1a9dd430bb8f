"""Random calls of buffers with samplers and transforms of every kind, each compared with the oracle.

python -m tests.fuzz.calls                  100,000 calls
python -m tests.fuzz.calls --calls 2000 --seed 5
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count, repeat

import numpy as np

from replaylab.replay import Aged, FreshFirst, Prioritized, Queue, Sequence, Uniform
from tests.replay.transforms.transform_worlds import COMBINATIONS, SAMPLERS, TransformWorld, fields_for, make_transforms

PER_WORLD = 60
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112
"""Where snapshots are written, because waiting for a disk takes as long as everything else."""


def one_of(rng, options):
    """Return a random one of the options."""
    return options[rng.integers(len(options))]


def random_sampler(rng, capacity, steps_apart):
    """Return a sampler; half of them age, or put new steps first, or do both.

    Args:
        rng: Random generator.
        capacity: Capacity of its buffer, at most 20 half-lives.
        steps_apart: Distance of the tags of neighboring steps, at most.
    """
    if rng.random() < 0.5:
        return one_of(rng, (*SAMPLERS, Queue()))
    weights = {"beta": 0.5, "normalize": one_of(rng, ("buffer", "batch", "none"))}
    new_steps = one_of(rng, ("largest_stored", "largest_ever"))
    prioritized = Prioritized(
        alpha=one_of(rng, (0.3, 0.6, 1.0)), stratified=rng.random() < 0.5, new_steps=new_steps, **weights
    )
    inner = one_of(rng, (Uniform(), Uniform(stratified=True), prioritized, prioritized))
    clock = one_of(rng, ("steps", "steps", "tag"))
    half_life = capacity * float(np.exp(rng.uniform(np.log(0.05), np.log(4.0))))
    window = one_of(rng, (None, int(rng.integers(1, capacity + 2))))
    aged = Aged(
        inner,
        half_life=half_life * (steps_apart if clock == "tag" else 1) if window is None or rng.random() < 0.8 else None,
        floor=one_of(rng, (0.0, 0.0, 0.01, 0.5)),
        window=window,
        clock=clock,
    )
    return one_of(rng, (aged, aged, aged, FreshFirst(inner), FreshFirst(aged)))


def random_world(rng):
    """Return a buffer and its oracle, with a random one of everything."""
    num_envs, replicas = one_of(rng, (None, 1, 3)), one_of(rng, (None, 2))
    capacity = max(one_of(rng, (1, 2, 5, 17, 64, 200)), num_envs or 1)
    autoreset = one_of(rng, (None, "disabled", "next_step", "same_step"))
    transforms = make_transforms(rng, *one_of(rng, COMBINATIONS), stacked_input=rng.random() < 0.5)
    sampler = random_sampler(rng, capacity, steps_apart=6 * (num_envs or 1) * (replicas or 1))
    if any(isinstance(transform, Sequence) for transform in transforms) and not sampler.draws_sequences:
        transforms = []
    return TransformWorld(
        capacity,
        transforms,
        fields=fields_for(rng, transforms, autoreset),
        num_envs=num_envs,
        replicas=replicas,
        sampler=sampler,
        autoreset=autoreset,
        next_obs=one_of(rng, ("stored", "derived")),
        lengths=one_of(rng, ((1, 1), (1, 6), (2, 90))),
        seed=int(rng.integers(2**32)),
    )


def random_call(world, rng, folder):
    """Make a random call, and compare what it changes or returns."""
    chance = rng.random()
    if chance < 0.3:
        most = 3 * world.buffer.capacity // world.E + 2
        T = None if rng.random() < 0.5 else int(rng.integers(0, min(most, 80)))
        world.give(T, masked=rng.random() < 0.3)
    elif chance < 0.38:
        world.write(int(rng.integers(0, 12)))
        world.check_contents()
    elif chance < 0.46:
        world.remove(int(rng.integers(0, 5)))
        world.check_contents()
    elif chance < 0.6:
        world.check_sample(int(rng.integers(1, 12)), again=rng.random() < 0.3)
    elif chance < 0.75 and world.sampler.wants_feedback:
        world.update_priorities(int(rng.integers(0, 20)))
    elif chance < 0.92:
        world.check_probabilities(int(rng.integers(1, 6)))
    elif chance < 0.95:
        world.end_episodes()
    elif chance < 0.99:
        world.reload(folder)
    else:
        world.clear()


def run(calls, seed):
    """Make so many calls, of a few buffers each; return the number of buffers.

    Raises:
        AssertionError: A buffer and its oracle differ; the message names the seed of the buffer.
    """
    for number in range(-(-calls // PER_WORLD)):
        rng = np.random.default_rng([seed, number])
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            world = random_world(rng)
            try:
                for _ in range(PER_WORLD):
                    random_call(world, rng, folder)
                world.check_contents()
            except Exception as error:
                error.add_note(f"buffer {number} of seed {seed}: {world.buffer!r}, {world.transforms}")
                raise
    return number + 1


def main():
    """Make the calls that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.calls", description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun, workers = time.monotonic(), os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        buffers = sum(pool.map(run, repeat(-(-asked.calls // workers), workers), count(asked.seed * workers)))
    print(f"{asked.calls:,} calls of {buffers:,} buffers in {time.monotonic() - begun:.0f} s agree with the oracle")


if __name__ == "__main__":
    main()
