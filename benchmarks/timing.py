"""Interleaved rounds: each round times every contestant on every operation, in a rotating order."""

import dataclasses
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import BATCH, CHUNK, Contestant, Pool
from benchmarks.harness import rotated
from benchmarks.limit import LABEL, Limit


@dataclasses.dataclass(frozen=True)
class Operation:
    """One row of the table.

    Attributes:
        name: As printed and as the key in the JSON file.
        method: The contestant's method, and with `prepare_` before it the maker of its inputs.
        prioritized: Which of a library's two buffers is timed.
        limit: The operation's name in the limit program.
        calls: Calls in one timed block.
    """

    name: str
    method: str
    prioritized: bool
    limit: str
    calls: int


OPERATIONS = (
    Operation("uniform add", "add", False, "add", 500),
    Operation("uniform add of 64", "add_64", False, "add_64", 50),
    Operation("uniform sample(256)", "sample", False, "uniform", 50),
    Operation("prioritized add", "add", True, "add", 500),
    Operation("prioritized add of 64", "add_64", True, "add_64", 50),
    Operation("prioritized sample(256)", "sample", True, "prioritized", 50),
    Operation("update_priorities(256)", "update", True, "update", 50),
)

PARTS = 10  # of a timed block
Times = dict[str, dict[str, NDArray[np.float64]]]
Turn = Callable[[tuple[int, ...]], float | None]
"""Times one block, its inputs made from the seed: nanoseconds a call, or None where the library lacks it."""
Rows = Mapping[str, Mapping[str, Turn]]


def prepare(contestant: Contestant, operation: Operation, pool: Pool, seed: tuple[int, ...]) -> list[object] | None:
    """Make the inputs of one block, the same for every contestant; `None` if it lacks the operation."""
    rng = np.random.default_rng(seed)
    calls = operation.calls
    if operation.method == "add":
        return contestant.prepare_add(pool.slices(rng.integers(0, len(pool) - calls) + np.arange(calls), 1))
    if operation.method == "add_64":
        return contestant.prepare_add_64(pool.slices(rng.integers(0, len(pool) - CHUNK, calls), CHUNK))
    if operation.method == "sample":
        return contestant.prepare_sample(rng.integers(0, 2**31, calls).tolist())
    ages = rng.integers(0, contestant.capacity, (calls, BATCH))
    return contestant.prepare_update(ages, draw_priorities(rng, (calls, BATCH)))


def draw_priorities(rng: np.random.Generator, shape: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Draw priorities as the size of a normal TD error, never quite zero."""
    return np.abs(rng.standard_normal(shape)) + 1e-6


def time_block(run: Callable[[list[Any]], None], inputs: list[Any]) -> float:
    """Time a block of calls in parts; return nanoseconds a call in the median part.

    A part is a few calls, so that an interruption by another process spoils that part and not the block.
    """
    length = max(len(inputs) // PARTS, 1)
    times = []
    for first in range(0, len(inputs), length):
        part = inputs[first : first + length]
        start = time.perf_counter_ns()
        run(part)
        times.append((time.perf_counter_ns() - start) / len(part))
    return float(np.median(times))


def rows_of(contestants: Sequence[Contestant], limit: Limit | None, pool: Pool) -> Rows:
    """Return the turns of every operation."""
    rows: dict[str, dict[str, Turn]] = {}
    for operation in OPERATIONS:
        turns: dict[str, Turn] = {
            c.label: partial(_time_operation, c, operation, pool)
            for c in contestants
            if c.prioritized == operation.prioritized
        }
        if limit is not None:
            turns[LABEL] = limit_turn(limit, operation.limit, operation.calls)
        rows[operation.name] = turns
    return rows


def limit_turn(limit: Limit, operation: str, calls: int) -> Turn:
    """Return the limit's turn, which needs no inputs."""
    return lambda _: limit.block(operation, calls)


def _time_operation(contestant: Contestant, operation: Operation, pool: Pool, seed: tuple[int, ...]) -> float | None:
    inputs = prepare(contestant, operation, pool, seed)
    return None if inputs is None else time_block(getattr(contestant, operation.method), inputs)


def run_rounds(rows: Rows, rounds: int, seed: int, on_round: Callable[[int], None]) -> Times:
    """Time everything; return microseconds a call by operation and label, one value a round.

    The garbage collector is off, inputs are made just before each block and outside its timing, and the limit
    takes its turn like everybody else, so that noise from outside hits all alike.
    """
    times: dict[str, dict[str, list[float]]] = {name: {} for name in rows}
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for row, (name, turns) in enumerate(rows.items()):
                for label in rotated(list(turns), number):
                    nanoseconds = turns[label]((seed, number, row))
                    if nanoseconds is not None:
                        times[name].setdefault(label, []).append(nanoseconds / 1000)
            on_round(number + 1)
    finally:
        gc.enable()
    return {name: {who: np.array(t) for who, t in row_times.items()} for name, row_times in times.items()}
