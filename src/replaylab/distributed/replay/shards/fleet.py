"""The shards as the learner knows them: what each last told, and who takes the place of one that is lost."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Thread
from time import monotonic
from typing import Any

from replaylab.distributed.replay.shards.ids import MOST_EPOCHS
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.distributed.replay.shards.transport import Declaration, Pending, ShardClient, ShardLost, Transport
from replaylab.errors import SnapshotError, StorageError

log = logging.getLogger("replaylab.distributed")

PAUSE = 1.0
"""Seconds before a shard that could not be started is started again."""

MOST_FAILURES = 60
"""Times in a row that a shard may fail to begin from its snapshot, whole as that may be, before it begins empty."""


@dataclass
class Place:
    """One of the S places; shards come and go in it.

    Attributes:
        declaration: What the shard that is there now was made from.
        client: It; where it is lost, the lost one, until the next is there.
        begun: The next one, None once it is there.
        tally: What it last told, None where it is lost.
        heard_at: When that was.
        former: Steps that shards before it had stored, and that its own count does not hold.
        told: Steps stored, as far as any shard of this place has told.
        losses: How many shards were lost here.
        lost_steps: Steps that were lost with them, as far as they had told.
        retry_at: When to start one again, where that has failed.
        failures: How often in a row it has failed in a shard that was there.
    """

    declaration: Declaration
    client: ShardClient
    begun: "Starting | None" = None
    tally: Tally | None = None
    heard_at: float = 0.0
    former: int = 0
    told: int = 0
    losses: int = 0
    lost_steps: int = 0
    retry_at: float | None = None
    failures: int = 0

    @property
    def number(self) -> int:
        """Its number."""
        return self.declaration.number

    @property
    def epoch(self) -> int:
        """The epoch of its shard."""
        return self.declaration.epoch


class Starting:
    """A shard on its way: the one before it is ended, and it is started and told to begin.

    Ray takes tens of milliseconds for that; where shards work beside this process a thread waits for it, no caller.

    Args:
        transport: Starts it.
        declaration: What it is made from.
        before: The shard before it, None where there is none.
    """

    def __init__(self, transport: Transport, declaration: Declaration, before: ShardClient | None) -> None:
        self._transport, self._declaration, self._before = transport, declaration, before
        self.client: ShardClient | None = None
        self._begun: Pending | None = None
        self._error: Exception | None = None
        self._thread = Thread(target=self._start, name="replaylab-start", daemon=True)
        if transport.background:
            self._thread.start()
        else:
            self._start()

    def ready(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return not self._thread.is_alive() and (self._begun is None or self._begun.ready())

    def result(self) -> Tally:
        """Wait until it has begun, and return what it tells.

        Raises:
            ShardLost: It ended before.
        """
        if self._transport.background:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._begun is not None  # or there were an error
        tally: Tally = self._begun.result()
        return tally

    def stop(self) -> None:
        """End it, also if it is yet to start."""
        if self._transport.background:
            self._thread.join()
        if self.client is not None:
            self.client.stop()

    def _start(self) -> None:
        if self._before is not None:
            self._before.stop()
        try:
            self.client = self._transport.start(self._declaration)
            self._begun = self.client.call("begin")
        except Exception as error:  # it is told to whoever waits
            self._error = error


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
        self.transport, self._folder, self.stopped = transport, folder, False
        self.places: list[Place] = []
        coming = [Starting(transport, one, None) for one in declarations]
        try:
            for declaration, one in zip(declarations, coming, strict=True):
                tally = one.result()
                assert one.client is not None  # or it had not begun
                self.places.append(Place(declaration, one.client))
                self._join(self.places[-1], tally)
        except BaseException as error:
            for one in coming:
                one.stop()
            if isinstance(error, ShardLost):
                reason = str(error).partition("\n")[0]
                raise StorageError(f"a shard ended before it had begun: {reason}") from error
            raise

    def stop(self) -> None:
        """End all shards; none is started any more."""
        self.stopped = True
        for place in self.places:
            place.client.stop()
            if place.begun is not None:
                place.begun.stop()

    def live(self) -> list[Place]:
        """Return the places whose shards are there."""
        return [place for place in self.places if place.tally is not None]

    def totals(self) -> list[float]:
        """Return T̂ of each place, as last told; 0 where no shard is there."""
        return [0.0 if place.tally is None else place.tally.total for place in self.places]

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
            place.heard_at = monotonic()
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

    def refresh(self, older: float = 0.0) -> None:
        """Read all tallies anew that are older than so many seconds."""
        self.tend()
        now = monotonic()
        calls = [(place, place.client) for place in self.live() if now - place.heard_at >= older]
        asked = [(place, client, self.ask(place, "tally")) for place, client in calls]
        for place, client, pending in asked:
            if pending is not None:
                self.answer(place, client, pending)

    def ask(self, place: Place, method: str, *arguments: Any) -> Pending | None:
        """Call a place's shard; None if it is found lost by that.

        Raises:
            StorageError: The replay was closed.
        """
        self.check_going()  # where Ray was shut down, a call would start it anew
        try:
            return place.client.call(method, *arguments)
        except ShardLost as error:
            self.lose(place, place.client, error)
            return None

    def lose(self, place: Place, client: ShardClient, reason: ShardLost) -> None:
        """Start another shard in place of one that is lost, if that has not been done yet; do not wait for it."""
        self.check_going()
        if place.client is not client or place.tally is None:
            return
        place.losses += 1
        log.warning("shard %d (epoch %d) is lost: %s", place.number, place.epoch, str(reason).partition("\n")[0])
        place.tally = None
        self._start(place, self._folder(place.number))

    def tend(self) -> None:
        """See which shards have come, and start those again that could not be started; waits for none."""
        self.check_going()
        for place in self.places:
            if place.retry_at is not None and monotonic() >= place.retry_at:
                place.retry_at = None
                self._start(place, place.declaration.folder)
            if place.begun is None or not place.begun.ready():
                continue
            try:
                self._join(place, place.begun.result())
            except Exception as error:  # of any kind: the other shards serve meanwhile
                if place.begun.client is None and isinstance(error, StorageError):
                    raise  # none can be started any more
                log.warning("shard %d (epoch %d) could not begin: %s", place.number, place.epoch, error)
                place.begun.stop()
                place.begun, place.retry_at = None, monotonic() + PAUSE
                place.failures += not isinstance(error, ShardLost)
                if isinstance(error, SnapshotError) or place.failures >= MOST_FAILURES:
                    place.declaration = replace(place.declaration, folder=None)

    def check_going(self) -> None:
        """Raise `StorageError` once the replay is closed."""
        if self.stopped:
            raise StorageError("the shards of this replay have ended; make it again, or load a snapshot")

    def _start(self, place: Place, folder: str | None) -> None:
        epoch = place.epoch + 1
        if epoch >= MOST_EPOCHS:
            raise StorageError(f"shard {place.number} was lost {epoch} times; there are no more epochs for ids")
        place.declaration = replace(place.declaration, epoch=epoch, folder=folder, absorbs=())
        place.begun = Starting(self.transport, place.declaration, place.client)

    def _join(self, place: Place, tally: Tally) -> None:
        lost = max(place.told - tally.added, 0)
        if place.begun is not None and place.begun.client is not None:
            place.client = place.begun.client
        place.begun, place.tally, place.failures = None, tally, 0
        place.former += lost
        place.lost_steps += lost
        place.told = tally.added
        if place.losses:
            log.warning(
                "shard %d is there again (epoch %d) with %d steps; %d known to have been stored are lost",
                *(place.number, place.epoch, tally.size, lost),
            )
