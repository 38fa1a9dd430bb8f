"""The N actors, kept at work: asked for steps, listened to, and started again where they die."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol, cast

from replaylab.distributed.replay.shards.transport import Pending, ShardClient, ShardLost
from replaylab.distributed.training.actor import Published, Report
from replaylab.distributed.training.options import DEPTH
from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

MOST_LOSSES = 5
"""Actors of one slot that may die one after the other without having stored a step."""

SILENCE = 60.0
"""Seconds after which the log says of an actor that it has not answered."""


class Launcher(Protocol):
    """Starts actors, in Ray or, in tests, in this process."""

    def start(self, number: int, life: int) -> ShardClient:
        """Start an actor without waiting for it. Its first call, `begin`, raises what goes wrong.

        Its client is that of a shard, with the actor's life as its epoch: `begin` and `step` are methods of `Actor`,
        and the parcel of `step` comes from `publish`.
        """

    def publish(self, weights: Any) -> Any:
        """Return what stands for weights in calls of `step`."""

    def ready(self, pendings: list[Pending], seconds: float) -> list[bool]:
        """Return which of the answers are there; where none is, wait for one, but so long at most."""


@dataclass
class ActorSlot:
    """One of the N slots; actors come and go in it.

    Attributes:
        number: Which.
        life: How many actors there were before this one.
        client: The actor.
        beginning: Its answer to `begin`, None once it has come. In a cluster without room for it, it does not.
        calls: What it was asked for and has not answered, oldest first: steps, and the answer to come.
        fruitless: Actors that died one after the other without having taken a step.
        heard_at: When it was started, or has last answered.
        warned: Whether the log says that it is silent.
    """

    number: int
    life: int
    client: ShardClient
    beginning: Pending | None = None
    calls: deque[tuple[int, Pending]] = field(default_factory=deque)
    fruitless: int = 0
    heard_at: float = field(default_factory=monotonic)
    warned: bool = False

    @property
    def awaited(self) -> Pending | None:
        """The answer that comes next, None where there is none to come."""
        return self.beginning or (self.calls[0][1] if self.calls else None)


class ActorPool:
    """All actors.

    Args:
        launcher: Starts them.
        lives: For each slot, how many actors there were before; N of them.
        envs: E of each.
        unroll: Time steps of a call, at most.

    Attributes:
        launcher: Starts them.
        losses: Actors that died.
        lost_steps: Steps that they were asked for and that they have not reported.
    """

    def __init__(self, launcher: Launcher, lives: list[int], envs: int, unroll: int) -> None:
        self.launcher, self._envs, self._unroll = launcher, envs, unroll
        self.slots: list[ActorSlot] = []
        self.losses = self.lost_steps = 0
        self._turn = 0
        try:
            for number, life in enumerate(lives):
                self.slots.append(ActorSlot(number, life, launcher.start(number, life)))
                self._begin(self.slots[-1])
        except BaseException:
            self.stop()
            raise

    @property
    def in_flight(self) -> int:
        """Steps that actors are asked for and have not reported yet."""
        return sum(steps for slot in self.slots for steps, _ in slot.calls)

    def ask(self, room: int, progress: float, published: Callable[[], Published]) -> None:
        """Ask those that have begun, and have least to do, for steps, as long as there is room for more.

        Args:
            room: Steps that may be asked for; each actor steps all its environments, so it may be E − 1 more.
            progress: How far training is, in [0, 1].
            published: Returns weights to act by.
        """
        for depth in range(DEPTH):
            for _ in self.slots:
                slot = self.slots[self._turn % len(self.slots)]
                if room <= 0:
                    return
                self._turn += 1
                if slot.beginning is not None or len(slot.calls) > depth:
                    continue
                count = min(self._unroll, -(-room // self._envs))
                room -= count * self._envs
                version, weights = published()
                try:
                    answer = slot.client.call("step", version, count, progress, parcel=weights)
                except ShardLost as error:
                    self._lose(slot, error)
                    continue
                if not slot.calls:
                    slot.heard_at = monotonic()
                slot.calls.append((count * self._envs, answer))

    def collect(self, seconds: float) -> list[Report]:
        """Return the actors' new reports, waiting for the first for at most `seconds`."""
        waiting = {slot.number: slot.awaited for slot in self.slots if slot.awaited is not None}
        if not waiting:
            return []
        reports = list[Report]()
        for number, has_answered in zip(waiting, self.launcher.ready(list(waiting.values()), seconds), strict=True):
            if not has_answered:
                _watch(self.slots[number])
            elif (report := self._heard(self.slots[number])) is not None:
                reports.append(report)
        return reports

    def stop(self) -> None:
        """End all actors."""
        for slot in self.slots:
            slot.client.stop()

    def _begin(self, slot: ActorSlot) -> None:
        slot.heard_at, slot.warned = monotonic(), False
        try:
            slot.beginning = slot.client.call("begin")
        except ShardLost as error:
            self._lose(slot, error)

    def _heard(self, slot: ActorSlot) -> Report | None:
        """Return the oldest answer of an actor; None: it has died, or only begun."""
        begins = slot.beginning is not None
        try:
            report: Report | None = cast("Pending", slot.awaited).result()
        except ShardLost as error:
            self._lose(slot, error)
            return None
        slot.heard_at, slot.warned = monotonic(), False
        if begins:
            slot.beginning = None
            return None
        slot.calls.popleft()
        slot.fruitless = 0
        return report

    def _lose(self, slot: ActorSlot, error: ShardLost) -> None:
        """Start another actor in place of one that died.

        Raises:
            StorageError: Too many have died in this slot.
        """
        untold = sum(steps for steps, _ in slot.calls)
        reason = str(error).partition("\n")[0]
        slot.beginning = None
        slot.calls.clear()
        slot.client.stop()
        self.losses += 1
        self.lost_steps += untold
        slot.fruitless += 1
        if slot.fruitless > MOST_LOSSES:
            raise StorageError(
                f"actor {slot.number} died {slot.fruitless} times before it had stored a step, the last time of: "
                f"{reason}; look at its node's memory, and whether the environment ends its process"
            )
        slot.life += 1
        log.warning(
            "actor %d (life %d) is lost, and %d steps that it was asked for: %s; another one is started",
            *(slot.number, slot.life - 1, untold, reason),
        )
        slot.client = self.launcher.start(slot.number, slot.life)
        self._begin(slot)


def _watch(slot: ActorSlot) -> None:
    """Say once of an actor that it has been silent for long."""
    if slot.warned or monotonic() - slot.heard_at < SILENCE:
        return
    slot.warned = True
    if slot.beginning is not None:
        log.warning(
            "actor %d has not begun within %.0f s, and training continues without it: its environment takes long to "
            "make, or no node has the cores free that it is to get (see ray status)",
            *(slot.number, SILENCE),
        )
    else:
        log.warning(
            "actor %d has not answered for %.0f s, and what it was asked for is waited for: its environment takes "
            "long, or hangs",
            *(slot.number, SILENCE),
        )
