"""RemoteReplay beside a bare Ray actor that returns, or takes in, the same bytes; and the wait for a lost shard.

    python -m benchmarks.remote_replay --seconds 2

Ratios of medians of pairs, one right after the other: Ray's own speed depends on what else the machine does.
"""

import argparse
import os
import statistics
import time
from collections import deque

import numpy as np
import ray

from replaylab import Field
from replaylab.distributed.replay import RemoteReplay
from replaylab.replay import Prioritized

BATCH = 256
FLAG = Field((), bool)
STATE = {"obs": Field((17,)), "action": Field((6,)), "reward": Field(), "next_obs": Field((17,)), "terminated": FLAG}
FRAMES = Field((4, 84, 84), np.uint8)
PIXELS = {"obs": FRAMES, "action": Field((), np.int64), "reward": Field(), "next_obs": FRAMES, "terminated": FLAG}
KINDS = {"state": (STATE, 20_000), "pixels": (PIXELS, 1_000)}


def rows(fields, count=BATCH):
    return {name: np.zeros((count, *field.shape), field.dtype) for name, field in fields.items()}


class Bare:
    """An actor that knows nothing of replay."""

    def __init__(self, columns):
        self.columns = columns

    def give(self):
        return self.columns

    def take(self, columns):
        return len(columns)


def rate(call, seconds):
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - begun)


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


def compare(ours, bare, seconds, pairs):
    ours(), bare()
    found = [(rate(ours, seconds / pairs), rate(bare, seconds / pairs)) for _ in range(pairs)]
    mine, theirs = (statistics.median(column) for column in zip(*found, strict=True))
    return mine, theirs, statistics.median(one / other for one, other in found)


def show(what, flight, shards, found):
    ours, bare, ratio = found
    print(f"{what:15} {flight} in flight, {shards} shards: {ours:8.1f}/s, bare {bare:8.1f}/s, {ratio:.2f}", flush=True)


def measure(kind, shards, flights, seconds, pairs):
    fields, capacity = KINDS[kind]
    columns = rows(fields)
    own = columns | {"probability": np.ones(BATCH), "id": np.zeros(BATCH, np.int64)}
    actor = ray.remote(num_cpus=0)(Bare).remote(own)
    with RemoteReplay(capacity, fields, shards=shards, sampler=Prioritized(beta=0.4), seed=0) as replay:
        for _ in range(min(capacity // BATCH, 8) * 2):
            replay.extend(**columns)
        for flight in flights:
            replay._draws._prefetch = flight - 1
            call = in_flight(actor.give.remote, copied, flight)
            show(f"{kind} batches", flight, shards, compare(lambda: replay.sample(BATCH), call, seconds, pairs))
            writer = replay.writer(window=flight)
            call = in_flight(lambda: actor.take.remote(columns), ray.get, flight)
            found = compare(lambda writer=writer: writer.extend(**columns), call, seconds, pairs)
            writer.flush()
            show(f"{kind} adds", flight, shards, found)
    ray.kill(actor)


def loss(times):
    """Milliseconds that the learner waits for the batch in which one of four shards is found lost, and otherwise."""
    waits, usual = [], []
    for _ in range(times):
        with RemoteReplay(20_000, STATE, shards=4, prefetch=1, sampler=Prioritized(beta=0.4)) as replay:
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--flights", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--losses", type=int, default=1)
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    for kind in given.kinds:
        for shards in given.shards:
            measure(kind, shards, given.flights, given.seconds, given.pairs)
    if given.losses:
        loss(given.losses)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
