"""The shards as the learner knows them: what each reported last, and the replacement of lost ones."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Thread
from time import monotonic
from typing import Any

from replaylab.distributed.replay.shards.ids import MOST_EPOCHS
from replaylab.distributed.replay.shards.shard import Survey, Tally
from replaylab.distributed.replay.shards.transport import Declaration, Pending, ShardClient, ShardLost, Transport
from replaylab.errors import OverSizeError, SnapshotError, StorageError

log = logging.getLogger("replaylab.distributed")

PAUSE = 1.0
"""Seconds before a shard that could not be started is started again."""

MOST_FAILURES = 60
"""Times in a row that a shard may fail to begin from its snapshot, whole as that may be, before it begins empty."""


@dataclass
class ShardSlot:
    """One of the S slots; shards come and go in it.

    Attributes:
        declaration: What the shard that is there now was made from.
        client: It; where it is lost, the lost one, until the next is there.
        begun: The next one, None once it is there.
        survey: What its shard needs, and what its node has.
        tally: What it last told, None where it is lost.
        heard_at: When that was.
        former: Steps that shards before it had stored, and that its own count does not hold.
        known_adds: Steps stored, as far as any shard of this slot has reported.
        losses: How many shards were lost here.
        lost_steps: Steps that were lost with them, as far as they had reported.
        retry_at: When to start one again, where that has failed.
        failures: How often in a row it has failed in a shard that was there.
    """

    declaration: Declaration
    client: ShardClient
    survey: Survey
    begun: "Starting | None" = None
    tally: Tally | None = None
    heard_at: float = 0.0
    former: int = 0
    known_adds: int = 0
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
    """A shard on its way: the one before it is ended, it is started and surveyed, and told to begin once it has room.

    Ray takes tens of milliseconds for that; where shards work beside this process a thread waits for it, no caller.

    Args:
        transport: Starts it.
        declaration: What it is made from.
        before: The shard before it, None where there is none.
        probe: See `Shard.survey`.

    Attributes:
        begins: Whether it was asked to begin.
    """

    def __init__(
        self, transport: Transport, declaration: Declaration, before: ShardClient | None, probe: str | None = None
    ) -> None:
        self._transport, self._declaration, self._before, self._probe = transport, declaration, before, probe
        self.client: ShardClient | None = None
        self.begins = False
        self._answer: Pending | None = None
        self._error: Exception | None = None
        self._thread = Thread(target=self._start, name="replaylab-start", daemon=True)
        if transport.background:
            self._thread.start()
        else:
            self._start()

    def ready(self) -> bool:
        """Whether `surveyed`, or `result` after `begin`, would return or raise at once."""
        return not self._thread.is_alive() and (self._answer is None or self._answer.ready())

    def surveyed(self) -> Survey:
        """Wait until it is started, and return what it needs, and what its node has.

        Raises:
            ShardLost: It ended before.
        """
        if self._transport.background:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._answer is not None  # or there were an error
        survey: Survey = self._answer.result()
        return survey

    def begin(self) -> None:
        """Tell it to begin."""
        assert self.client is not None  # or it could not be surveyed
        self._answer = self.client.call("begin")
        self.begins = True

    def result(self) -> Tally:
        """Wait until it has begun, and return what it tells.

        Raises:
            ShardLost: It ended before.
        """
        assert self._answer is not None
        tally: Tally = self._answer.result()
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
            self._answer = self.client.call("survey", self._probe)
        except Exception as error:  # raised again for whoever waits
            self._error = error


class ShardPool:
    """All shards. Not to be called by several threads at once.

    Args:
        transport: Starts them.
        declarations: One for each slot.
        folder: Where a slot's snapshots are, None: nowhere.
        probe: See `Shard.survey`.

    Raises:
        OverSizeError: The shards on a node need more memory together than it has.
        StorageError: The folder for snapshots cannot be written to by a shard, or a shard cannot be started.
    """

    def __init__(
        self,
        transport: Transport,
        declarations: list[Declaration],
        folder: Callable[[int], str | None],
        probe: str | None = None,
    ) -> None:
        self.transport, self._folder, self.stopped = transport, folder, False
        self.slots: list[ShardSlot] = []
        coming = [Starting(transport, starting, None, probe) for starting in declarations]
        try:
            surveys = [starting.surveyed() for starting in coming]
            for survey in surveys:
                check_memory(survey.node, surveys)
            for starting in coming:
                starting.begin()
            for declaration, survey, starting in zip(declarations, surveys, coming, strict=True):
                tally = starting.result()
                assert starting.client is not None  # or it had not begun
                self.slots.append(ShardSlot(declaration, starting.client, survey))
                self._join(self.slots[-1], tally)
        except BaseException as error:
            for starting in coming:
                starting.stop()
            if isinstance(error, ShardLost):
                reason = str(error).partition("\n")[0]
                raise StorageError(f"a shard ended before it had begun: {reason}") from error
            raise

    def stop(self) -> None:
        """End all shards; none is started any more."""
        self.stopped = True
        for slot in self.slots:
            slot.client.stop()
            if slot.begun is not None:
                slot.begun.stop()

    def live(self) -> list[ShardSlot]:
        """Return the slots whose shards are there."""
        return [slot for slot in self.slots if slot.tally is not None]

    def totals(self) -> list[float]:
        """Return T̂ of each slot, as last reported; 0 where no shard is there."""
        return [0.0 if slot.tally is None else slot.tally.total for slot in self.slots]

    @property
    def inserted(self) -> int:
        """Steps stored so far, those that were lost or dropped since among them."""
        return sum(slot.former + (slot.tally.added if slot.tally else slot.known_adds) for slot in self.slots)

    @property
    def size(self) -> int:
        """Steps stored now."""
        return sum(slot.tally.size for slot in self.slots if slot.tally)

    def go_on_from(self, inserted: int) -> None:
        """Count so many steps as stored so far, at least."""
        self.slots[0].former += max(inserted - self.inserted, 0)

    def heard(self, slot: ShardSlot, tally: Tally) -> bool:
        """Take note of a tally; False, and nothing is noted, if it is of a former shard of this slot."""
        if tally.epoch != slot.epoch or slot.tally is None:
            return False
        if tally.serial > slot.tally.serial:  # answers may be collected in another order than they were given
            slot.tally = tally
            slot.known_adds = tally.added
            slot.heard_at = monotonic()
        return True

    def answer(self, slot: ShardSlot, client: ShardClient, pending: Pending) -> Any:
        """Wait for an answer, the last part of which is a tally; None if the shard is lost, or was before."""
        answer = self.last_answer(slot, client, pending)
        return answer if slot.client is client and slot.tally is not None else None

    def last_answer(self, slot: ShardSlot, client: ShardClient, pending: Pending) -> Any:
        """Return what `answer` does, and also what a shard answered before it was lost."""
        try:
            answer = pending.result()
        except ShardLost as error:
            self.lose(slot, client, error)
            return None
        self.heard(slot, answer if isinstance(answer, Tally) else answer[-1])
        return answer

    def refresh(self, older: float = 0.0) -> None:
        """Request all tallies that are older than `older` seconds."""
        self.tend()
        now = monotonic()
        calls = [(slot, slot.client) for slot in self.live() if now - slot.heard_at >= older]
        requests = [(slot, client, self.ask(slot, "tally")) for slot, client in calls]
        for slot, client, pending in requests:
            if pending is not None:
                self.answer(slot, client, pending)

    def ask(self, slot: ShardSlot, method: str, *arguments: Any) -> Pending | None:
        """Call a slot's shard; return None if the shard turns out to be lost.

        Raises:
            StorageError: The replay was closed.
        """
        self.check_going()  # where Ray was shut down, a call would start it again
        try:
            return slot.client.call(method, *arguments)
        except ShardLost as error:
            self.lose(slot, slot.client, error)
            return None

    def lose(self, slot: ShardSlot, client: ShardClient, reason: ShardLost) -> None:
        """Start a replacement of a lost shard, unless that was done already, without waiting for it."""
        self.check_going()
        if slot.client is not client or slot.tally is None:
            return
        slot.losses += 1
        log.warning("shard %d (epoch %d) is lost: %s", slot.number, slot.epoch, str(reason).partition("\n")[0])
        slot.tally = None
        self._start(slot, self._folder(slot.number))

    def tend(self) -> None:
        """Add the shards that have started, and restart those whose start failed, without waiting."""
        self.check_going()
        for slot in self.slots:
            if slot.retry_at is not None and monotonic() >= slot.retry_at:
                slot.retry_at = None
                self._start(slot, slot.declaration.folder)
            if slot.begun is None or not slot.begun.ready():
                continue
            try:
                if not slot.begun.begins:
                    slot.survey = slot.begun.surveyed()
                    others = [other for other in self.slots if other is not slot]
                    taking = [other.survey for other in others if other.tally or (other.begun and other.begun.begins)]
                    check_memory(slot.survey.node, [slot.survey, *taking])
                    slot.begun.begin()
                    if not slot.begun.ready():
                        continue
                self._join(slot, slot.begun.result())
            except Exception as error:  # of any kind: the other shards serve meanwhile
                if slot.begun.client is None and isinstance(error, StorageError):
                    raise  # none can be started any more
                log.warning("shard %d (epoch %d) could not begin: %s", slot.number, slot.epoch, error)
                slot.begun.stop()
                slot.begun, slot.retry_at = None, monotonic() + PAUSE
                slot.failures += not isinstance(error, ShardLost | OverSizeError)
                if isinstance(error, SnapshotError) or slot.failures >= MOST_FAILURES:
                    slot.declaration = replace(slot.declaration, folder=None)

    def check_going(self) -> None:
        """Raise `StorageError` once the replay is closed."""
        if self.stopped:
            raise StorageError("the shards of this replay have ended; create it again, or load a snapshot")

    def _start(self, slot: ShardSlot, folder: str | None) -> None:
        epoch = slot.epoch + 1
        if epoch >= MOST_EPOCHS:
            raise StorageError(f"shard {slot.number} was lost {epoch} times; there are no more epochs for ids")
        slot.declaration = replace(slot.declaration, epoch=epoch, folder=folder, absorbs=())
        slot.begun = Starting(self.transport, slot.declaration, slot.client)

    def _join(self, slot: ShardSlot, tally: Tally) -> None:
        lost = max(slot.known_adds - tally.added, 0)
        if slot.begun is not None and slot.begun.client is not None:
            slot.client = slot.begun.client
        slot.begun, slot.tally, slot.failures = None, tally, 0
        slot.former += lost
        slot.lost_steps += lost
        slot.known_adds = tally.added
        if slot.losses:
            log.warning(
                "shard %d is there again (epoch %d) with %d steps; %d known to have been stored are lost",
                *(slot.number, slot.epoch, tally.size, lost),
            )


def check_memory(node: str, surveys: list[Survey]) -> None:
    """Raise `OverSizeError` if the shards on a node need more memory together than it has."""
    on_node = [survey for survey in surveys if survey.node == node]
    needed, memory = sum(survey.needed for survey in on_node), min(survey.memory for survey in on_node)
    if needed > memory:
        raise OverSizeError(
            f"{len(on_node)} shards on node {node} need {needed / 2**20:,.1f} MiB together, but it has "
            f'{memory / 2**20:,.1f} MiB; use a smaller capacity, store less in a step (next_obs="derived", compressed '
            'or smaller fields), or add nodes and pass placement="spread"'
        )
