"""Batches on their way: asked of all shards at once, topped up where one is lost, copied out."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from replaylab.distributed.replay.law import Portion, split, weights_of
from replaylab.distributed.replay.limiter import Limiter
from replaylab.distributed.replay.shards.fleet import Fleet, Place
from replaylab.distributed.replay.shards.ids import global_ids
from replaylab.distributed.replay.shards.packing import INLINE
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.distributed.replay.shards.transport import Pending, ShardClient
from replaylab.distributed.replay.shards.trees import joined, leaves
from replaylab.errors import EmptyBufferError, StorageError
from replaylab.replay import Sampler

PATIENCE = 60.0
"""Seconds to wait for a shard where none is there."""

POLL = 0.002
"""Seconds between two looks at shards that have told nothing new."""


class Shared:
    """An answer with the rows of several batches; each takes its own.

    Args:
        fleet: The shards.
        place: Which was asked.
        pending: Its answer to come, None where it was found lost.
    """

    def __init__(self, fleet: Fleet, place: Place, pending: Pending | None) -> None:
        self._fleet, self.place, self._client, self._pending = fleet, place, place.client, pending
        self._answer: Any = None

    def rows(self, batch: int) -> tuple[dict[str, Any] | None, Tally] | None:
        """Return a batch's rows, and the tally; None if the shard is lost, now or since the others took theirs."""
        if self._pending is not None:
            self._answer = self._fleet.answer(self.place, self._client, self._pending)
            self._pending = None
        if self._answer is None or not self._fleet.heard(self.place, self._answer[-1]):
            return None
        columns, tally = self._answer
        mine, columns[batch] = columns[batch], None  # so that nothing is kept longer than its batch
        return mine, tally


@dataclass
class Asked:
    """Rows asked for at one time.

    Attributes:
        rows: How many.
        totals: T̂ of each place.
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
        fleet: The shards.
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
        fleet: Fleet,
        sampler: Sampler,
        prefetch: int,
        limiter: Limiter | None,
        min_size: int,
        strict: bool,
        random: np.random.Generator,
        pause: Callable[[float], Any],
    ) -> None:
        self._fleet, self._sampler, self._random, self._pause = fleet, sampler, random, pause
        self._stratified = getattr(sampler, "stratified", True)  # those that have no such option are
        self._prefetch, self._limiter, self._min_size, self._strict = prefetch, limiter, min_size, strict
        self._asked: deque[Asked] = deque()
        self._row_bytes = INLINE  # as long as it is not known
        self.drawn = 0  # rows asked for, which the limiter bounds
        self.topped_up = 0  # rows drawn from other shards than those asked first

    def batch(self, rows: int, beta: float | None, check: Callable[[int, Any], None]) -> dict[str, Any]:
        """Return the columns of a batch of so many rows; where B changes, batches on their way are left.

        Args:
            rows: B.
            beta: β now, None for samplers without.
            check: Is called with B and the first part that comes; may raise.
        """
        while True:
            if self._asked and self._asked[0].rows != rows:  # of another call, maybe of another thread's meanwhile
                self._asked.clear()  # the shards draw them all the same, so they stay counted
            together = self._together(rows) if self._asked else 1
            if len(self._asked) + together > self._prefetch + 1:
                break
            if not self._may_ask(rows * together, wait=not self._asked):
                break
            self.drawn += rows * together
            self._asked.extend(self._sent(rows, together))
        return self._collected(self._asked.popleft(), beta, check)

    def _together(self, rows: int) -> int:
        """Return how many batches a call asks for: a call costs Ray more than a small batch, but one is to be there."""
        return max(1, min((self._prefetch + 1) // 2, INLINE // (rows * self._row_bytes)))

    def _may_ask(self, rows: int, wait: bool) -> bool:
        """Whether a batch may be asked for now; if there is none to wait for, wait until one may."""
        fleet = self._fleet
        fleet.tend()
        if self._strict:
            fleet.refresh()
        if self._limiter and not self._limiter.allows(self.drawn + rows, fleet.inserted):
            fleet.refresh()
        if not wait:
            within = self._limiter is None or self._limiter.allows(self.drawn + rows, fleet.inserted)
            return within and self._can_draw()
        if self._limiter:
            self._await_limiter(self._limiter, rows)
        self._await_steps()
        return True

    def _await_limiter(self, limiter: Limiter, rows: int) -> None:
        fleet, begun = self._fleet, monotonic()
        while not limiter.allows(self.drawn + rows, fleet.inserted):
            if monotonic() - begun > limiter.timeout:
                raise EmptyBufferError(
                    f"{limiter} allows {limiter.allowed(fleet.inserted):,.0f} rows for the {fleet.inserted:,} steps "
                    f"stored so far, but {self.drawn:,} are drawn and {rows:,} more asked for; add steps, or give it "
                    "a slack"
                )
            self._pause(POLL)
            fleet.refresh()

    def _can_draw(self) -> bool:
        return self._fleet.size >= self._min_size and any(self._fleet.totals())

    def _await_steps(self) -> None:
        """Where too little can be drawn, wait for shards in place of lost ones, and for nothing else."""
        fleet, begun = self._fleet, monotonic()
        while not self._can_draw():
            fleet.refresh()
            if self._can_draw():
                return
            if len(fleet.live()) == len(fleet.places):
                self._raise_empty()
            if monotonic() - begun > PATIENCE:
                raise StorageError(f"no shard has come in {PATIENCE:.0f} s in place of those that were lost")
            self._pause(POLL)

    def _raise_empty(self) -> None:
        size, least = self._fleet.size, self._min_size
        if size < least:
            raise EmptyBufferError(f"{size:,} steps are stored in all shards, but a batch needs {least:,}; add more")
        raise EmptyBufferError(
            f"every one of the {size:,} stored steps has priority 0, so none can be drawn; give at least one a "
            "positive priority with update_priorities"
        )

    def _sent(self, rows: int, batches: int = 1) -> list[Asked]:
        """Ask for so many batches of so many rows."""
        fleet = self._fleet
        totals, clients = fleet.totals(), [place.client for place in fleet.places]
        counts = [split(totals, rows, self._random, self._stratified) for _ in range(batches)]
        asked = [Asked(rows, totals, clients) for _ in counts]
        for place, own in zip(fleet.places, zip(*counts, strict=True), strict=True):
            if any(own):
                shared = Shared(fleet, place, fleet.ask(place, "draw", *own))
                for batch, count in enumerate(own):
                    if count:
                        asked[batch].parts.append((shared, batch))
        return asked

    def _collected(self, asked: Asked, beta: float | None, check: Callable[[int, Any], None]) -> dict[str, Any]:
        rows, portions = asked.rows, list[Portion]()
        columns: list[dict[str, Any]] = []
        while True:
            portion, came = self._portion(asked)
            if came:
                check(rows, came[0])
                if self._row_bytes == INLINE:
                    self._row_bytes = max(sum(leaf.nbytes for leaf in leaves(came[0])) // len(came[0]["id"]), 1)
                portions.append(portion)
                columns.extend(came)
            missing = asked.rows - sum(len(part["id"]) for part in came)
            if not missing:
                break
            self.topped_up += missing
            self._await_steps()
            (asked,) = self._sent(missing)
        weight = weights_of(self._sampler, beta, portions)
        probability = [part for portion in portions for part in portion.probabilities]
        for part, law in zip(columns, probability, strict=True):
            part["probability"] = law
        whole: dict[str, Any] = joined(columns)
        own = {"weight": weight, "probability": whole.pop("probability"), "id": whole.pop("id")}
        return whole | own

    def _portion(self, asked: Asked) -> tuple[Portion, list[dict[str, Any]]]:
        """Wait for what was asked for, and return what came."""
        answers, columns = {}, []
        for shared, batch in asked.parts:
            place, (part, tally) = shared.place, shared.rows(batch) or (None, None)
            if part is None or tally is None:  # lost, or it has nothing to draw any more
                continue
            part["id"] = global_ids(place.epoch, place.number, part["id"])
            answers[place.number] = (part["probability"], tally)
            columns.append(part)
        given, silent = set(answers), {shared.place.number for shared, _ in asked.parts} - set(answers)
        there = {
            place.number: place.tally
            for place, client in zip(self._fleet.places, asked.clients, strict=True)
            if place.tally and place.client is client and place.number not in silent
        }
        line = [total if s in given or s in there else 0.0 for s, total in enumerate(asked.totals)]
        return Portion(line, answers, there), columns
