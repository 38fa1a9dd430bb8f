"""RemoteReplay beside a bare Ray actor that returns, or takes in, the same bytes; and the wait for a lost shard.

    python -m benchmarks.remote_replay --seconds 2
    python -m benchmarks.remote_replay --soak 600  # memory at the start, in the middle and at the end instead

Medians of the ratios of pairs, one right after the other: Ray's own speed depends on what else the machine does. Beside
them the processors' time of the two processes for each call, which depends on that less.
"""

import os
import statistics
import time
from collections import deque
from pathlib import Path

import numpy as np
import ray

from benchmarks import harness
from replaylab import Field
from replaylab.distributed.ray_session import RaySession
from replaylab.distributed.replay import RemoteOptions, RemoteReplay
from replaylab.replay import Prioritized, ReplayBuffer

BATCH = 256
TICKS = os.sysconf("SC_CLK_TCK")
FLAG = Field((), bool)
STATE = {"obs": Field((17,)), "action": Field((6,)), "reward": Field(), "next_obs": Field((17,)), "terminated": FLAG}
FRAMES = Field((4, 84, 84), np.uint8)
PIXELS = {"obs": FRAMES, "action": Field((), np.int64), "reward": Field(), "next_obs": FRAMES, "terminated": FLAG}
KINDS = {"state": (STATE, 20_000), "pixels": (PIXELS, 1_000)}


def rows(fields, count=BATCH):
    return {name: np.zeros((count, *field.shape), field.dtype) for name, field in fields.items()}


class Bare:
    """An actor that knows nothing of replay: it returns what it was made with, and copies what it takes."""

    def __init__(self, columns, capacity):
        self.columns, self.at = columns, 0
        self.taken = {name: np.empty((capacity, *column.shape[1:]), column.dtype) for name, column in columns.items()}

    def give(self):
        return self.columns

    def take(self, columns):
        begin = self.at = (self.at + BATCH) % (len(self.taken["id"]) - BATCH)
        for name, column in columns.items():
            self.taken[name][begin : begin + BATCH] = column
        return begin


def processor_time(pid):
    """Seconds that a process has run, all its threads together."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / TICKS


def rate(call, seconds, pids):
    """Calls a second, and the processors' time for each, of this process and of these."""
    count, before, begun = 0, sum(map(processor_time, pids)), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        call()
        count += 1
    passed = time.perf_counter() - begun
    return count / passed, (sum(map(processor_time, pids)) - before) / count


def pid_of(actor):
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))


def in_flight(send, receive, most):
    """One call that keeps so many on their way."""
    sent = deque()

    def call():
        while len(sent) < most:
            sent.append(send())
        receive(sent.popleft())

    return call


def copied(reference):
    return {name: column.copy() for name, column in ray.get(reference).items()}


def compare(lab, bare, seconds, pairs, pids):
    """Medians: our rate, the bare one, their ratio, and that of the processors' times."""
    lab(), bare()
    rates = []
    for _ in range(pairs):
        lab_rates, other = (
            rate(call, seconds / pairs, processes) for call, processes in zip((lab, bare), pids, strict=True)
        )
        rates.append((lab_rates[0], other[0], lab_rates[0] / other[0], other[1] / lab_rates[1]))
    return [statistics.median(column) for column in zip(*rates, strict=True)]


def show(what, flight, shards, medians, alone=float("inf")):
    """One line; the limit is a bare actor that does the buffer's own work, so many times a second, besides."""
    lab, bare, ratio, work = medians
    limit = 1.0 / (1.0 / bare + 1.0 / alone)
    rates = f"{lab:8.1f}/s, bare {bare:8.1f}/s, {ratio:.2f}; of the limit {lab / limit:.2f}"
    print(f"{what:15} {flight} in flight, {shards} shards: {rates}; by processors' time {work:.2f}", flush=True)


def draws_alone(fields, capacity, columns, seconds):
    """Batches a second that one buffer draws in this process."""
    buffer = ReplayBuffer(capacity, fields, sampler=Prioritized(beta=0.4))
    for _ in range(capacity // BATCH):
        buffer.extend(**columns)
    return rate(lambda: buffer.sample(BATCH), seconds, [os.getpid()])[0]


def measure(kind, shards, flights, seconds, pairs):
    fields, capacity = KINDS[kind]
    columns = rows(fields)
    drawn = columns | {"probability": np.ones(BATCH), "id": np.zeros(BATCH, np.int64)}
    actor = ray.remote(num_cpus=0)(Bare).remote(drawn, capacity)
    alone = draws_alone(fields, capacity, columns, seconds / 4)
    print(f"{kind} batches of one buffer in this process: {alone:8.1f}/s")
    with RemoteReplay(capacity, fields, shards=shards, sampler=Prioritized(beta=0.4), seed=0) as replay:
        for _ in range(min(capacity // BATCH, 8) * 2):
            replay.extend(**columns)
        actors = [place.client.actor for place in replay._fleet.places]
        pids = [[os.getpid(), *map(pid_of, actors)], [os.getpid(), pid_of(actor)]]
        for flight in flights:
            replay._draws._prefetch = flight - 1
            call = in_flight(actor.give.remote, copied, flight)
            medians = compare(lambda: replay.sample(BATCH), call, seconds, pairs, pids)
            show(f"{kind} batches", flight, shards, medians, alone)
            writer = replay.writer(window=flight)
            call = in_flight(lambda: actor.take.remote(columns), ray.get, flight)
            medians = compare(lambda writer=writer: writer.extend(**columns), call, seconds, pairs, pids)
            writer.flush()
            show(f"{kind} adds", flight, shards, medians)
    ray.kill(actor)


def loss(times):
    """Milliseconds that the learner waits for the batch in which one of four shards is found lost, and otherwise."""
    waits, usual = [], []
    for _ in range(times):
        with RemoteReplay(20_000, STATE, shards=4, sampler=Prioritized(beta=0.4)) as replay:
            for _ in range(16):
                replay.extend(**rows(STATE))
            for k in range(60):
                if k == 30:
                    ray.kill(replay._fleet.places[1].client.actor)
                begun = time.perf_counter()
                replay.sample(BATCH)
                (usual if k < 30 else waits).append(1000 * (time.perf_counter() - begun))
    print(
        f"a shard of 4 killed: longest wait {max(waits):.1f} ms; before it median {statistics.median(usual):.1f} ms, "
        f"longest {max(usual[1:]):.1f} ms"
    )


def memory(pid, kind):
    """Resident MiB: a process's own (RssAnon), or those of the object store that it has touched (RssShmem)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(kind))) / 2**10


def soak(seconds):
    """The memory of learner and shards, while all calls continue for so long."""
    fields = {name: field for name, field in PIXELS.items() if name != "next_obs"}
    columns = rows(fields, 32)
    options = RemoteOptions(prefetch=3)
    with RemoteReplay(2_000, fields, shards=2, options=options, sampler=Prioritized(beta=0.4)) as replay:
        pids = [os.getpid(), *(pid_of(place.client.actor) for place in replay._fleet.places)]
        writer, count, begun = replay.writer(), 0, time.monotonic()
        for share in (0.05, 0.25, 0.5, 0.75, 1.0):
            while time.monotonic() - begun < share * seconds:
                writer.extend(**columns)
                batch = replay.sample(32)
                replay.update_priorities(batch.id, np.abs(batch.reward) + 1.0)
                count += 1
            learner, *shards = ([round(memory(pid, kind)) for kind in ("RssAnon", "RssShmem")] for pid in pids)
            passed = f"after {time.monotonic() - begun:4.0f} s, {count:7,} rounds"
            print(f"{passed}: MiB (own, shared) of the learner {learner}, of the shards {shards}", flush=True)
        writer.flush()


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--flights", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--losses", type=int, default=1)
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="instead: memory at five moments of so long")
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    RaySession(object_store_bytes=2**30).open()
    if options.soak:
        soak(options.soak)
        options.kinds, options.losses = [], 0
    for kind in options.kinds:
        for shards in options.shards:
            measure(kind, shards, options.flights, options.seconds, options.pairs)
    if options.losses:
        loss(options.losses)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
