"""What a writer has on its way to one slot: in order, several steps' calls in one where they come faster than answers.

A call costs Ray more than most steps' bytes. So a call goes out at once where none is on its way, and is held back
where one is, until an answer comes, enough of them have gathered, or a moment has passed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.packing import INLINE, packed
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.distributed.replay.shards.transport import Pending, ShardClient, ShardLost

Ids = npt.NDArray[np.int64]


class Call:
    """A call that is on its way, with one message or several.

    Args:
        pending: Its answer to come.
        several: Whether it is that of `Shard.several`.
    """

    def __init__(self, pending: Pending, several: bool) -> None:
        self._pending, self._several = pending, several
        self._answer: tuple[list[Any], Tally] | None = None

    def answer(self, at: int) -> tuple[Ids, Tally]:
        """Wait for the call, and return the answer to one of its messages.

        Raises:
            ShardLost: The shard is lost.
            Exception: What the shard raised.
        """
        if self._answer is None:
            answers, tally = self._pending.result()
            self._answer = answers if self._several else [answers], tally
        answers, tally = self._answer
        if isinstance(answers[at], Exception):
            raise answers[at]
        return answers[at], tally


@dataclass
class Message:
    """Steps, or an episode's end, that are not acknowledged yet.

    Attributes:
        number: Its number among the writer's messages to this slot.
        method: Of `Shard`.
        parcel: What follows writer, number and acknowledged.
        acknowledge: What is done with the global ids that come back.
        call: What it is on its way with, None where it is held, or the shard was lost at once.
        at: Which of that call's messages it is.
    """

    number: int
    method: str
    parcel: Any
    acknowledge: Callable[[Ids], None]
    call: Call | None = None
    at: int = 0

    @property
    def nbytes(self) -> int:
        """What it adds to a call; more than any call takes where it lies beside it."""
        return len(self.parcel) if isinstance(self.parcel, bytes) else INLINE


class Outbox:
    """A writer's messages to one slot. Its methods may be called by several threads.

    Args:
        writer: The writer's name.
        client: The shard there, as far as the writer knows.
        most: How many messages may be held.
    """

    def __init__(self, writer: str, client: ShardClient, most: int) -> None:
        self.client, self._writer, self._most = client, writer, most
        self._lock = RLock()
        self._sent: deque[Message] = deque()  # what is not acknowledged, oldest first
        self._held = 0  # how many of them, the newest, are not on their way
        self._since = 0.0  # when the oldest of these came
        self._number = self._acknowledged = 0  # the last number given, and the last one acknowledged

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def held(self) -> bool:
        """Whether messages wait to be sent."""
        return self._held > 0

    def put(self, method: str, parcel: Any, acknowledge: Callable[[Ids], None]) -> None:
        """Send a message, now or together with later ones."""
        with self._lock:
            message = Message(self._number + 1, method, parcel, acknowledge)
            if sum(waiting.nbytes for waiting in self._waiting()) + message.nbytes > INLINE:
                self.transmit()
            self._sent.append(message)
            self._number += 1
            self._since = self._since if self._held else monotonic()
            self._held += 1
            if self._held in (len(self._sent), self._most) or message.nbytes >= INLINE:
                try:
                    self.transmit()
                except Exception:
                    if self._held:  # it, too: the caller learns that it was not sent
                        self._sent.pop()
                        self._held -= 1
                        self._number -= 1
                    raise

    def transmit(self, older: float = 0.0) -> None:
        """Send the held messages if the oldest of them is older than `older` seconds."""
        with self._lock:
            if monotonic() - self._since < older:
                return
            while self._held:
                waiting = self._waiting()
                count, nbytes = 1, waiting[0].nbytes
                while count < len(waiting) and nbytes + waiting[count].nbytes <= INLINE:
                    nbytes += waiting[count].nbytes
                    count += 1
                self._send(waiting[:count])
                self._held -= count

    def resend(self, client: ShardClient) -> None:
        """Send all unacknowledged messages again, to this shard."""
        with self._lock:
            self.client, self._held = client, len(self._sent)
            self.transmit()

    def oldest(self) -> Message:
        """Return the oldest unacknowledged message, which has been sent unless the shard is lost."""
        with self._lock:
            if self._held == len(self._sent):
                self.transmit()
            return self._sent[0]

    def acknowledged(self) -> None:
        """Remove the oldest message, which its shard has answered."""
        with self._lock:
            self._acknowledged = self._sent.popleft().number
            if self._held == len(self._sent):
                self.transmit()

    def _waiting(self) -> list[Message]:
        """Return the messages that wait to be sent."""
        return list(self._sent)[len(self._sent) - self._held :]

    def _send(self, messages: list[Message]) -> None:
        (first, *more), acknowledged = messages, self._acknowledged
        try:
            if more:
                heads = [(message.number, message.method) for message in messages]
                together = packed(tuple(message.parcel for message in messages))
                pending = self.client.call("several", self._writer, acknowledged, heads, parcel=together)
            else:
                about = (self._writer, first.number, acknowledged)
                pending = self.client.call(first.method, *about, parcel=first.parcel)
            call = Call(pending, bool(more))
        except ShardLost:
            call = None
        for at, message in enumerate(messages):
            message.call, message.at = call, at
