"""Replay in shards and training by actors, with targets: `pip install "replaylab[lab,ray,torch]" id-echo==0.2.1`.

    python -m benchmarks.distributed --before OTHER/.venv/bin/python  # with an earlier version, in the same run
    python -m benchmarks.distributed                                  # without those rows that need one

The versions take turns, measure by measure, `--repeats` times; ratios are medians of those within a turn. It takes four
to six minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack
from importlib.util import find_spec
from threading import Thread

import numpy as np

from benchmarks import distributed_training as training
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
    while time.perf_counter() - begun < seconds:  # fresh pages of the object store are four times as slow
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
    """An actor that knows nothing of replay, and sends the distinct frames of batches.

    There are several, as those of a replay come from memory, too, and not from the processor's cache.
    """

    def __init__(self):
        self.batches = deque(np.ones((ROWS, 5, 84, 84), np.uint8) for _ in range(16))

    def give(self):
        self.batches.rotate()
        return self.batches[0]


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
    ray.kill(actor)
    return {"batches/s": 1000 / figures["clock ms"], "thread ms": figures["thread ms"]}


class Echo:
    """A server of id-echo, which has one queue and no priorities, in its own process, and a reader that empties it."""

    def __init__(self):
        from echo import Server, TcpTransport

        self.server = Server(step_of(()), ROWS, TcpTransport(port=0), producer_queue_size=64)
        self.server.start()
        Thread(target=lambda: deque(self.server.dataset_iter(), maxlen=0), daemon=True).start()

    def port(self):
        return self.server.port


def step_of(axes):
    """A step of `SINGLE`."""
    return {name: np.asarray(column[0]) for name, column in columns(SINGLE, 1, *axes).items()}


def store(send, flush, step, seconds):
    """Send single steps, and return how many a second arrived."""
    for _ in range(2_000):
        send(step)
    flush()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(200):
            send(step)
        count += 200
    flush()
    return count / (time.perf_counter() - begun)


def store_in_shard(writer, envs, seconds):
    """Steps a second of a writer."""
    return envs * store(lambda step: writer.add(**step), writer.flush, step_of([envs] * (envs > 1)), seconds)


def store_in_echo(port, seconds):
    """Steps a second of a client of id-echo."""
    from echo import TcpClient

    client = TcpClient("127.0.0.1", port, step_of(()), max_inflight_msgs=256)
    return store(client.send, client.wait, step_of(()), seconds)


def inserts(writers, envs, seconds):
    """Steps a second of writers in their own processes; each waits until its last step can be drawn."""
    import ray

    task, count = ray.remote(num_cpus=0)(store_in_shard), writers * envs
    with RemoteReplay(100_000, SINGLE, num_envs=count if envs > 1 else None, shards=1, seed=0) as replay:
        each = [replay.writer(range(k * envs, (k + 1) * envs) if envs > 1 else None) for k in range(writers)]
        return {"steps/s": sum(ray.get([task.remote(writer, envs, seconds) for writer in each]))}


def echo_inserts(writers, seconds):
    """The same with id-echo."""
    import ray

    server, task = ray.remote(num_cpus=0)(Echo).remote(), ray.remote(num_cpus=0)(store_in_echo)
    port = ray.get(server.port.remote())
    rates = ray.get([task.remote(port, seconds) for _ in range(writers)])
    ray.kill(server)
    return {"steps/s": sum(rates)}


def cartpole_pace(actors, seconds):
    """Steps a second with default options, and updates a step."""
    config = training.cartpole(int(3_000 * seconds))
    rate, updates = training.pace(config, actors and training.Actors(actors))
    return {"steps/s": rate, "updates/step": updates / config.total_steps}


def waiting_pace(actors, seconds):
    """Steps a second if the environment's step waits 5 ms."""
    config = training.waiting(64 + int((150 * 4 * actors if actors else 150) * seconds), 0.005)
    return {"steps/s": training.pace(config, actors and training.Actors(actors))[0]}


def learners_pace(count, bare, seconds):
    """Batches a second of data-parallel learners whose update waits 5 ms; `bare`: the same batch again and again."""
    return {"batches/s": training.learners_pace(count, int(120 * seconds), 0.005, bare)}


MEASURES = {
    "one process, CartPole": (cartpole_pace, (None,)),
    "4 actors, CartPole": (cartpole_pace, (4,)),
    "one process, waits 5 ms": (waiting_pace, (None,)),
    "2 actors, waits 5 ms": (waiting_pace, (2,)),
    "learner, 1 shard": (learner, (1,)),
    "learner, 8 shards": (learner, (8,)),
    "frames, 1 shard": (frames, (1,)),
    "frames, 2 shards": (frames, (2,)),
    "frames, bare actor": (bare_frames, (2,)),
    "1 learner, waits 5 ms": (learners_pace, (1, False)),
    "2 learners, wait 5 ms": (learners_pace, (2, False)),
    "1 learner, one batch": (learners_pace, (1, True)),
    "2 learners, one batch each": (learners_pace, (2, True)),
    "inserts, 1 writer": (inserts, (1, 1)),
    "inserts, 2 writers": (inserts, (2, 1)),
    "inserts, 1 writer of 8 environments": (inserts, (1, 8)),
    "inserts, 2 writers of 8 environments": (inserts, (2, 8)),
    "id-echo, 1 writer": (echo_inserts, (1,)),
    "id-echo, 2 writers": (echo_inserts, (2,)),
}

BEFORE = ("one process, CartPole", "frames, 1 shard", "frames, 2 shards", "learner, 1 shard", "learner, 8 shards")
"""Measures of the earlier version."""

EARLIER = " (before)"

TARGETS = (
    ("4 actors / one process, CartPole", "4 actors, CartPole", "one process, CartPole" + EARLIER, 0.5),
    ("2 actors / one process, a step waits 5 ms", "2 actors, waits 5 ms", "one process, waits 5 ms", 1.8),
    ("frames, now / before, 1 shard", "frames, 1 shard", "frames, 1 shard" + EARLIER, 1.5),
    ("frames, now / before, 2 shards", "frames, 2 shards", "frames, 2 shards" + EARLIER, 1.5),
    ("frames, 1 shard / bare actor", "frames, 1 shard", "frames, bare actor", 0.7),
    ("2 learners / 1, an update waits 5 ms", "2 learners, wait 5 ms", "1 learner, waits 5 ms", 1.8),
    ("2 learners / 1 without draws: the limit", "2 learners, one batch each", "1 learner, one batch", None),
    ("inserts, 1 writer / id-echo", "inserts, 1 writer", "id-echo, 1 writer", 1.0),
    ("inserts, 2 writers / id-echo", "inserts, 2 writers", "id-echo, 2 writers", 1.0),
    ("inserts, 1 writer of 8 / id-echo", "inserts, 1 writer of 8 environments", "id-echo, 1 writer", 3.0),
    ("inserts, 2 writers of 8 / id-echo", "inserts, 2 writers of 8 environments", "id-echo, 2 writers", 3.0),
)
"""Rows of ratios: title, measure, other measure, and the least ratio that is wanted."""


def serve(seconds):
    """Perform the measures whose names arrive, each on one line, and print their figures."""
    session = RaySession(cores=2, object_store_bytes=2**30)
    session.open()
    for line in sys.stdin:
        measure, arguments = MEASURES[line.strip()]
        print(json.dumps(measure(*arguments, seconds)), flush=True)
    session.close()


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="PYTHON", help="Python of an environment with an earlier version")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.seconds)
        return
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    command = ["-m", "benchmarks.distributed", "--serve", "--seconds", str(arguments.seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    runs = {}
    with ExitStack() as started:
        servers = {}
        for ending, python in (("", sys.executable), (EARLIER, arguments.before)):
            if python:
                servers[ending] = started.enter_context(subprocess.Popen([python, *command], **pipes))
        for _ in range(arguments.repeats):
            for name in arguments.only:
                if "echo" in name and not find_spec("echo"):
                    continue
                for ending, server in servers.items():
                    if not ending or name in BEFORE:
                        print(name, file=server.stdin, flush=True)
                        figures = json.loads(server.stdout.readline())
                        runs.setdefault(name + ending, []).append(figures)
                        shown = ", ".join(f"{value:,.2f} {figure}" for figure, value in figures.items())
                        print(f"{name + ending:38}{shown}", flush=True)
    for shards, most in ((1, 0.3), (8, 0.6)):
        if figures := runs.get(f"learner, {shards} shard{'s' * (shards > 1)}"):
            median = statistics.median(each["thread ms"] for each in figures)
            print(f"{f'sample and feedback, {shards} shards':46}{median:6.2f} ms (at most {most})")
    for title, above, below, least in TARGETS:
        if above in runs and below in runs:
            first = [[next(iter(figures.values())) for figures in runs[name]] for name in (above, below)]
            ratios = [a / b for a, b in zip(*first, strict=True)]
            rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            wanted = "" if least is None else f"at least {least}; "
            print(f"{title:46}{statistics.median(ratios):6.2f} ({wanted}rounds {rounds})")


if __name__ == "__main__":
    main()
