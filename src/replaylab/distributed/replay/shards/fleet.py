"""The shards as the learner knows them: what each last told, and who takes the place of one that is lost."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.ids import MOST_EPOCHS
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.distributed.replay.shards.transport import Declaration, Pending, ShardClient, ShardLost, Transport
from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

PAUSE = 1.0
"""Seconds before a shard that could not be started is started again."""


@dataclass
class Place:
    """One of the S places; shards come and go in it.

    Attributes:
        declaration: What the shard that is there now was made from.
        client: It.
        begun: The answer of its `begin`, None once it is there.
        tally: What it last told, None until it is there.
        former: Steps that shards before it had stored, and that its own count does not hold.
        told: Steps stored, as far as any shard of this place has told.
        losses: How many shards were lost here.
        lost_steps: Steps that were lost with them, as far as they had told.
        retry_at: When to start one again, where that has failed.
    """

    declaration: Declaration
    client: ShardClient
    begun: Pending | None = None
    tally: Tally | None = None
    former: int = 0
    told: int = 0
    losses: int = 0
    lost_steps: int = 0
    retry_at: float | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.declaration.number

    @property
    def epoch(self) -> int:
        """The epoch of its shard."""
        return self.declaration.epoch


class Fleet:
    """All shards. Not to be called by several threads at once.

    Args:
        transport: Starts them.
        declarations: One for each place.
        folder: Where a place's snapshots are, None: nowhere.
    """

    def __init__(
        self, transport: Transport, declarations: list[Declaration], folder: Callable[[int], str | None]
    ) -> None:
        self.transport, self._folder, self._stopped = transport, folder, False
        self.places = [Place(one, transport.start(one)) for one in declarations]
        try:
            for place in self.places:
                self._begin(place)
            for place in self.places:
                if place.begun is None:
                    raise ShardLost("it was lost before its first call")
                self._join(place, place.begun.result())
        except ShardLost as error:
            self.stop()
            raise StorageError(f"a shard ended before it had begun: {str(error).partition(chr(10))[0]}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all shards; none is started any more."""
        self._stopped = True
        for place in self.places:
            place.client.stop()

    def live(self) -> list[Place]:
        """Return the places whose shards are there."""
        return [place for place in self.places if place.tally is not None]

    def totals(self) -> npt.NDArray[np.float64]:
        """Return T̂ (S,), as last told; 0 where no shard is there."""
        return np.array([0.0 if place.tally is None else place.tally.total for place in self.places])

    @property
    def inserted(self) -> int:
        """Steps stored so far, those that were lost or dropped since among them."""
        return sum(place.former + (place.tally.added if place.tally else place.told) for place in self.places)

    @property
    def size(self) -> int:
        """Steps stored now."""
        return sum(place.tally.size for place in self.places if place.tally)

    def go_on_from(self, inserted: int) -> None:
        """Count so many steps as stored so far, at least."""
        self.places[0].former += max(inserted - self.inserted, 0)

    def heard(self, place: Place, tally: Tally) -> bool:
        """Take note of a tally; False, and nothing is noted, if it is of a former shard of this place."""
        if tally.epoch != place.epoch or place.tally is None:
            return False
        if tally.serial > place.tally.serial:  # answers may be collected in another order than they were given
            place.tally = tally
            place.told = tally.added
        return True

    def answer(self, place: Place, client: ShardClient, pending: Pending) -> Any:
        """Wait for an answer, the last part of which is a tally; None if the shard is lost, or was before."""
        try:
            answer = pending.result()
        except ShardLost as error:
            self.lose(place, client, error)
            return None
        tally = answer if isinstance(answer, Tally) else answer[-1]
        return answer if self.heard(place, tally) else None

    def refresh(self) -> None:
        """Read all tallies anew."""
        self.tend()
        calls = [(place, place.client) for place in self.live()]
        asked = [(place, client, self.ask(place, "tally")) for place, client in calls]
        for place, client, pending in asked:
            if pending is not None:
                self.answer(place, client, pending)

    def ask(self, place: Place, method: str, *arguments: Any) -> Pending | None:
        """Call a place's shard; None if it is found lost by that."""
        try:
            return place.client.call(method, *arguments)
        except ShardLost as error:
            self.lose(place, place.client, error)
            return None

    def lose(self, place: Place, client: ShardClient, reason: ShardLost) -> None:
        """Start another shard in place of one that is lost, if that has not been done yet; do not wait for it."""
        if place.client is not client:
            return
        if place.tally is not None:
            place.losses += 1
            log.warning("shard %d (epoch %d) is lost: %s", place.number, place.epoch, str(reason).partition("\n")[0])
        client.stop()
        place.tally = None
        self._start(place, self._folder(place.number))

    def tend(self) -> None:
        """See which shards have come, and start those again that could not be started; waits for none."""
        for place in self.places:
            if place.retry_at is not None and monotonic() >= place.retry_at:
                place.retry_at = None
                self._start(place, place.declaration.folder)
            if place.begun is None or not place.begun.ready():
                continue
            try:
                self._join(place, place.begun.result())
            except Exception as error:  # of any kind: the other shards serve meanwhile
                log.warning("shard %d (epoch %d) could not begin: %s", place.number, place.epoch, error)
                place.client.stop()
                place.begun, place.retry_at = None, monotonic() + PAUSE
                if not isinstance(error, ShardLost):  # then its snapshot is of no use
                    place.declaration = replace(place.declaration, folder=None)

    def _start(self, place: Place, folder: str | None) -> None:
        if self._stopped:
            raise StorageError("the shards of this replay have ended; make it again, or load a snapshot")
        epoch = place.epoch + 1
        if epoch >= MOST_EPOCHS:
            raise StorageError(f"shard {place.number} was lost {epoch} times; there are no more epochs for ids")
        place.declaration = replace(place.declaration, epoch=epoch, folder=folder, absorbs=())
        place.client = self.transport.start(place.declaration)
        self._begin(place)

    def _begin(self, place: Place) -> None:
        try:
            place.begun = place.client.call("begin")
        except ShardLost:
            place.begun, place.retry_at = None, monotonic() + PAUSE

    def _join(self, place: Place, tally: Tally) -> None:
        lost = max(place.told - tally.added, 0)
        place.begun, place.tally = None, tally
        place.former += lost
        place.lost_steps += lost
        place.told = tally.added
        if place.losses:
            log.warning(
                "shard %d is there again (epoch %d) with %d steps; %d known to have been stored are lost",
                *(place.number, place.epoch, tally.size, lost),
            )
