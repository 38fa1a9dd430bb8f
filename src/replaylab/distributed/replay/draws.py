"""Batches on their way: asked of all shards at once, topped up where one is lost, copied out."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from replaylab._core import concatenate
from replaylab.distributed.replay.distribution import Portion, split, weights_of
from replaylab.distributed.replay.limiter import Limiter
from replaylab.distributed.replay.shards.ids import global_ids
from replaylab.distributed.replay.shards.packing import INLINE
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.distributed.replay.shards.shard_pool import ShardPool, ShardSlot
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.errors import EmptyBufferError, OverSizeError, StorageError
from replaylab.replay import Sampler
from replaylab.trees import leaves, map_leaves

PATIENCE = 60.0
"""Seconds to wait for a shard where none is there."""

POLL = 0.002
"""Seconds between two looks at shards that have reported nothing new."""


class Shared:
    """An answer with the rows of several batches; each takes its own.

    Args:
        pool: The shards.
        slot: Which was asked.
        pending: Its answer to come, None where it was found lost.
    """

    def __init__(self, pool: ShardPool, slot: ShardSlot, pending: Pending | None) -> None:
        self._pool, self.slot, self._client, self._pending = pool, slot, slot.client, pending
        self._answer: Any = None

    def rows(self, batch: int) -> tuple[dict[str, Any] | None, Tally] | None:
        """Return a batch's rows, and the tally; None if the shard is lost, now or since the others took theirs."""
        if self._pending is not None:
            self._answer = self._pool.answer(self.slot, self._client, self._pending)
            self._pending = None
        if self._answer is None or not self._pool.heard(self.slot, self._answer[-1]):
            return None
        columns, tally = self._answer
        rows, columns[batch] = columns[batch], None  # so that its memory is freed with the batch
        return rows, tally


@dataclass
class Asked:
    """Rows requested at one time.

    Attributes:
        rows: How many.
        totals: T̂ of each slot.
        clients: The shards there were.
        parts: Who was asked, with the number of this batch among those that were asked for together.
    """

    rows: int
    totals: list[float]
    clients: list[ShardClient]
    parts: list[tuple[Shared, int]] = field(default_factory=list)


class Draws:
    """Draws batches from all shards, some of them ahead. Not to be called by several threads at once, but in pauses.

    Args:
        pool: The shards.
        sampler: What is drawn, with its β.
        prefetch: How many batches are on their way beside the one that is waited for.
        limiter: How often steps may be drawn.
        min_size: Steps that must be stored.
        strict: Whether totals are read before every draw.
        random: Of the shards' shares.
        pause: Sleeps for some seconds; what else is called from other threads may come in between.
    """

    def __init__(
        self,
        pool: ShardPool,
        sampler: Sampler,
        prefetch: int,
        limiter: Limiter | None,
        min_size: int,
        strict: bool,
        random: np.random.Generator,
        pause: Callable[[float], Any],
    ) -> None:
        self._pool, self._sampler, self._random, self._pause = pool, sampler, random, pause
        self._stratified = getattr(sampler, "stratified", True)  # those that have no such option are
        self._prefetch, self._limiter, self._min_size, self._strict = prefetch, limiter, min_size, strict
        self._requests: deque[Asked] = deque()
        self._row_bytes = INLINE  # as long as it is not known
        self._room_for = 0  # rows of a batch that there is room for
        self.drawn = 0  # rows asked for, which the limiter bounds
        self.topped_up = 0  # rows drawn from other shards than those asked first

    def batch(self, rows: int, beta: float | None) -> dict[str, Any]:
        """Return the columns of a batch of so many rows; where B changes, batches on their way are left.

        Args:
            rows: B.
            beta: β now, None for samplers without.

        Raises:
            OverSizeError: The object store is too small for the batches on their way.
        """
        while True:
            # Those of another call, maybe of another thread's, are drawn all the same, so they stay counted.
            if self._requests and self._requests[0].rows != rows:
                self._requests.clear()
            together = self._together(rows) if self._requests else 1
            if len(self._requests) + together > self._prefetch + 1:
                break
            if not self._may_ask(rows * together, wait=not self._requests):
                break
            self.drawn += rows * together
            self._requests.extend(self._sent(rows, together))
        return self._collected(self._requests.popleft(), beta)

    def _together(self, rows: int) -> int:
        """Return how many batches a call asks for: a call costs Ray more than a small batch, but one is to be there."""
        return max(1, min((self._prefetch + 1) // 2, INLINE // (rows * self._row_bytes)))

    def _may_ask(self, rows: int, wait: bool) -> bool:
        """Whether a batch may be asked for now; if there is none to wait for, wait until one may."""
        self._pool.tend()
        if self._strict or not self._is_within_limit(rows):
            self._pool.refresh()
        if not wait:
            return self._is_within_limit(rows) and self._can_draw()
        if self._limiter:
            self._await_limiter(self._limiter, rows)
        self._await_steps()
        return True

    def _is_within_limit(self, rows: int) -> bool:
        """Whether so many rows more may be asked for."""
        return self._limiter is None or self._limiter.allows(self.drawn + rows, self._pool.inserted)

    def _await_limiter(self, limiter: Limiter, rows: int) -> None:
        pool, begun = self._pool, monotonic()
        while not self._is_within_limit(rows):
            if monotonic() - begun > limiter.timeout:
                raise EmptyBufferError(
                    f"{limiter} allows {limiter.allowed(pool.inserted):,.0f} rows for the {pool.inserted:,} steps "
                    f"stored so far, but {self.drawn:,} are drawn and {rows:,} more asked for; add steps, or give it "
                    "a slack"
                )
            self._pause(POLL)
            pool.refresh()

    def _can_draw(self) -> bool:
        return self._pool.size >= self._min_size and any(self._pool.totals())

    def _await_steps(self) -> None:
        """Where too little can be drawn, wait for shards in place of lost ones, and for nothing else."""
        pool, begun, least = self._pool, monotonic(), self._min_size
        while not self._can_draw():
            pool.refresh()
            if self._can_draw():
                return
            if len(pool.live()) == len(pool.slots) and pool.size < least:
                raise EmptyBufferError(
                    f"{pool.size:,} steps are stored in all shards, but a batch needs {least:,}; add more"
                )
            if len(pool.live()) == len(pool.slots):
                raise EmptyBufferError(
                    f"every one of the {pool.size:,} stored steps has priority 0, so none can be drawn; give at "
                    "least one a positive priority with update_priorities"
                )
            if monotonic() - begun > PATIENCE:
                raise StorageError(f"no shard has come in {PATIENCE:.0f} s in place of those that were lost")
            self._pause(POLL)

    def _sent(self, rows: int, batches: int = 1) -> list[Asked]:
        """Request batches of this many rows."""
        pool = self._pool
        totals, clients = pool.totals(), [slot.client for slot in pool.slots]
        counts = [split(totals, rows, self._random, self._stratified) for _ in range(batches)]
        requests = [Asked(rows, totals, clients) for _ in counts]
        for slot, slot_counts in zip(pool.slots, zip(*counts, strict=True), strict=True):
            if any(slot_counts):
                shared = Shared(pool, slot, pool.ask(slot, "draw", *slot_counts))
                for batch, count in enumerate(slot_counts):
                    if count:
                        requests[batch].parts.append((shared, batch))
        return requests

    def _collected(self, request: Asked, beta: float | None) -> dict[str, Any]:
        rows, portions = request.rows, list[Portion]()
        columns: list[dict[str, Any]] = []
        while True:
            portion, came = self._portion(request)
            if came:
                self._check_room(rows, came[0])
                portions.append(portion)
                columns.extend(came)
            missing = request.rows - sum(len(part["id"]) for part in came)
            if not missing:
                break
            self.topped_up += missing
            self._await_steps()
            (request,) = self._sent(missing)
        weight = weights_of(self._sampler, beta, portions)
        probability = [part for portion in portions for part in portion.probabilities]
        for part, distribution in zip(columns, probability, strict=True):
            part["probability"] = distribution
        # in memory that former batches have given back: fresh pages cost several copies
        columns_of_batch: dict[str, Any] = map_leaves(lambda *leaves: concatenate(leaves), *columns)
        bookkeeping = {name: columns_of_batch.pop(name) for name in ("probability", "id")}
        return columns_of_batch | {"weight": weight} | bookkeeping

    def _check_room(self, rows: int, part: dict[str, Any]) -> None:
        """Raise `OverSizeError` if the object store has no room for the batches on their way; look once for each B."""
        if rows == self._room_for:
            return
        self._row_bytes = max(sum(leaf.nbytes for leaf in leaves(part)) // len(part["id"]), 1)
        on_their_way = self._prefetch + 1
        nbytes, room = self._row_bytes * rows * on_their_way, self._pool.transport.batch_room()
        if nbytes > room:
            raise OverSizeError(
                f"{on_their_way} batches of {rows:,} rows need {nbytes / 2**20:,.1f} MiB on their way, but the "
                f"object store has {room / 2**20:,.1f} MiB; use a smaller batch_size or prefetch, or start Ray with a "
                "larger object_store_memory"
            )
        self._room_for = rows

    def _portion(self, request: Asked) -> tuple[Portion, list[dict[str, Any]]]:
        """Wait for the requested rows, and return those that arrived."""
        answers, columns = {}, []
        for shared, batch in request.parts:
            slot, (part, tally) = shared.slot, shared.rows(batch) or (None, None)
            if part is None or tally is None:  # lost, or it has nothing to draw any more
                continue
            part["id"] = global_ids(slot.epoch, slot.number, part["id"])
            answers[slot.number] = (part["probability"], tally)
            columns.append(part)
        answered, silent = set(answers), {shared.slot.number for shared, _ in request.parts} - set(answers)
        tallies = {
            slot.number: slot.tally
            for slot, client in zip(self._pool.slots, request.clients, strict=True)
            if slot.tally and slot.client is client and slot.number not in silent
        }
        line = [total if s in answered or s in tallies else 0.0 for s, total in enumerate(request.totals)]
        return Portion(line, answers, tallies), columns
