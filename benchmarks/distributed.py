"""Replay in shards: the learner's time for batches, batches of frames a second, inserts of single steps.

    python -m benchmarks.distributed
    python -m benchmarks.distributed --before OTHER/.venv/bin/python  # also with another version, in the same run

Each measure runs in a fresh process, with the two versions one after another, `--repeats` times; the table has medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque

import numpy as np

from replaylab import Field
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import RemoteOptions, RemoteReplay
from replaylab.replay import FrameStack, Prioritized

FLAG = Field((), bool)
STATE = {"obs": Field((17,)), "action": Field((6,)), "reward": Field(), "next_obs": Field((17,)), "terminated": FLAG}
PIXELS = {
    "obs": Field((84, 84), np.uint8),
    "action": Field((), np.int64),
    "reward": Field(),
    "next_obs": Field((84, 84), np.uint8),
    "terminated": FLAG,
    "truncated": FLAG,
}
SINGLE = {
    "obs": Field((17,)),
    "action": Field((6,)),
    "reward": Field(),
    "next_obs": Field((17,)),
    "terminated": Field(),
}
ROWS = 256


def options(prefetch):
    """Options of this version: older ones draw a fixed number of batches ahead."""
    return RemoteOptions(prefetch=prefetch) if "prefetch" in RemoteOptions.__dataclass_fields__ else RemoteOptions()


def columns(fields, length, *axes):
    """Random steps, ``(length, *axes, *shape)``; no episode ends."""
    rng = np.random.default_rng(0)
    values = {}
    for name, field in fields.items():
        shape = (length, *axes, *field.shape)
        values[name] = np.zeros(shape, bool) if field.dtype == bool else rng.integers(0, 255, shape).astype(field.dtype)
    return values


def learner(shards, seconds):
    """Milliseconds of the learner's thread, and of the clock, for a batch of 256 rows with its feedback."""
    with RemoteReplay(
        20_000, STATE, sampler=Prioritized(beta=0.4), shards=shards, seed=0, options=options(2)
    ) as replay:
        for _ in range(16 * shards):
            replay.extend(**columns(STATE, 1000))
        errors = np.random.default_rng(0).random(ROWS)

        def update():
            batch = replay.sample(ROWS)
            replay.update_priorities(batch.id, errors)

        return thread_time(update, seconds)


def thread_time(call, seconds):
    """Milliseconds of this thread, and of the clock, for a call."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds / 4:
        call()
    count, begun, used = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < seconds:
        call()
        count += 1
    return {
        "thread ms": 1000 * (time.thread_time() - used) / count,
        "clock ms": 1000 * (time.perf_counter() - begun) / count,
    }


def frames(shards, seconds):
    """Batches of 256 pairs of stacks of 4 frames, a second."""
    declared = {"transforms": [FrameStack(4)], "next_obs": "derived", "num_envs": 2}
    with RemoteReplay(2_000, PIXELS, shards=shards, seed=0, options=options(1), **declared) as replay:
        for _ in range(8):
            replay.extend(**columns(PIXELS, 125, 2))
            replay.end_episode()
        total = [0]

        def read():
            batch = replay.sample(ROWS)
            total[0] += int(batch.obs[0, 0, 0, 0]) + int(batch.next_obs[-1, -1, 0, 0])

        figures = thread_time(read, seconds)
        return {"batches/s": 1000 / figures["clock ms"], "thread ms": figures["thread ms"]}


class Bare:
    """An actor that knows nothing of replay, and sends the distinct frames of a batch."""

    def __init__(self):
        self.frames = np.ones((ROWS, 5, 84, 84), np.uint8)

    def give(self):
        return self.frames


def bare_frames(in_flight, seconds):
    """Batches of the same frames a second from a bare Ray actor, copied out of the object store as they come."""
    import ray

    actor = ray.remote(num_cpus=0)(Bare).remote()
    sent, memory = deque(), np.empty((ROWS, 5, 84, 84), np.uint8)

    def read():
        while len(sent) < in_flight:
            sent.append(actor.give.remote())
        memory[:] = ray.get(sent.popleft())

    figures = thread_time(read, seconds)
    return {"batches/s": 1000 / figures["clock ms"], "thread ms": figures["thread ms"]}


def inserts(envs, seconds):
    """Steps a second of one writer, counted when they can be drawn."""
    axis = None if envs == 1 else envs
    with RemoteReplay(100_000, SINGLE, num_envs=axis, shards=1, seed=0, options=options(1)) as replay:
        writer = replay.writer()
        rows = columns(SINGLE, 1, *([] if axis is None else [axis]))
        step = {name: column[0] for name, column in rows.items()}
        for _ in range(2_000):
            writer.add(**step)
        writer.flush()
        before, begun, used = replay.stats().added, time.perf_counter(), time.thread_time()
        while time.perf_counter() - begun < seconds:
            for _ in range(200):
                writer.add(**step)
        writer.flush()
        passed, used = time.perf_counter() - begun, time.thread_time() - used
        count = replay.stats().added - before
        return {"steps/s": count / passed, "thread us": 1e6 * used / count}


MEASURES = {
    "learner, 1 shard": (learner, 1),
    "learner, 8 shards": (learner, 8),
    "frames, 1 shard": (frames, 1),
    "frames, 2 shards": (frames, 2),
    "frames, bare actor": (bare_frames, 2),
    "single inserts": (inserts, 1),
    "inserts of 8 environments": (inserts, 8),
}


def run(python, name, seconds):
    """The figures of one measure in a fresh process of a Python."""
    command = [python, "-m", "benchmarks.distributed", "--one", name, "--seconds", str(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ended.returncode:
        raise SystemExit(f"{name} with {python}: {ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="PYTHON", help="Python of an environment with another version")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--one", choices=list(MEASURES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        session = RaySession(cores=2, object_store_bytes=2**30)
        session.open()
        measure, argument = MEASURES[arguments.one]
        figures = measure(argument, arguments.seconds)
        session.close()
        print(json.dumps(figures))
        return
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for name in arguments.only:
        pythons = [python for python in (arguments.before, sys.executable) if python]
        runs = [[run(python, name, arguments.seconds) for python in pythons] for _ in range(arguments.repeats)]
        for figure in runs[0][0]:
            medians = [statistics.median(repeat[k][figure] for repeat in runs) for k in range(len(pythons))]
            before = f"{medians[0]:10.3f} before, ratio {medians[-1] / medians[0]:5.2f}" if arguments.before else ""
            print(f"{name:26} {figure:10} {medians[-1]:10.3f} {before}", flush=True)


if __name__ == "__main__":
    main()
