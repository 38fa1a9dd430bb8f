"""The N actors, kept at work: asked for steps, listened to, and started anew where they die."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol, cast

from replaylab.distributed.replay.shards.transport import Pending, ShardLost
from replaylab.distributed.training.actor import Published, Report
from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

DEPTH = 2
"""Calls on their way to each actor: while one's answer travels, the next is at work."""

MOST_LOSSES = 5
"""Actors of one place that may die one after the other without having stored a step."""

SILENCE = 60.0
"""Seconds after which the log says of an actor that it has not answered."""


class ActorClient(Protocol):
    """An actor, as the crew sees it. It answers calls in the order in which they came."""

    def call(self, method: str, *arguments: Any, parcel: Any = None) -> Pending:
        """Call a method of the `Actor`, without waiting for its answer; raise `ShardLost` where it is known dead.

        Args:
            method: Which.
            arguments: Its arguments but the last.
            parcel: The last, of `Stage.publish`; None: there is none.
        """
        ...

    def stop(self) -> None:
        """End it, if it is still there."""
        ...


class Stage(Protocol):
    """Starts actors, in Ray or, in tests, in this process."""

    def start(self, number: int, life: int) -> ActorClient:
        """Start an actor, without waiting for it; what goes wrong is raised by its first call, `begin`."""
        ...

    def publish(self, weights: Any) -> Any:
        """Return what stands for weights in calls of `step`."""
        ...

    def ready(self, pendings: list[Pending], seconds: float) -> list[bool]:
        """Return which of the answers are there; where none is, wait for one, but so long at most."""
        ...


@dataclass
class Post:
    """One of the N places; actors come and go in it.

    Attributes:
        number: Which.
        life: How many actors there were before this one.
        client: The actor.
        beginning: Its answer to `begin`, None once it has come. In a cluster without room for it, it does not.
        calls: What it was asked for and has not answered, oldest first: steps, and the answer to come.
        fruitless: Actors that died one after the other without having taken a step.
        heard_at: When it was started, or has last answered.
        told: Whether the log says that it is silent.
    """

    number: int
    life: int
    client: ActorClient
    beginning: Pending | None = None
    calls: deque[tuple[int, Pending]] = field(default_factory=deque)
    fruitless: int = 0
    heard_at: float = field(default_factory=monotonic)
    told: bool = False

    @property
    def awaited(self) -> Pending | None:
        """The answer that comes next, None where there is none to come."""
        return self.beginning or (self.calls[0][1] if self.calls else None)


class Crew:
    """All actors.

    Args:
        stage: Starts them.
        lives: For each place, how many actors there were before; N of them.
        envs: E of each.
        unroll: Time steps of a call, at most.

    Attributes:
        stage: Starts them.
        losses: Actors that died.
        lost_steps: Steps that they were asked for and that they have told nothing of.
    """

    def __init__(self, stage: Stage, lives: list[int], envs: int, unroll: int) -> None:
        self.stage, self._envs, self._unroll = stage, envs, unroll
        self.posts: list[Post] = []
        self.losses = self.lost_steps = 0
        self._turn = 0
        try:
            for number, life in enumerate(lives):
                self.posts.append(Post(number, life, stage.start(number, life)))
                self._begin(self.posts[-1])
        except BaseException:
            self.stop()
            raise

    @property
    def in_flight(self) -> int:
        """Steps that actors are asked for and have told nothing of yet."""
        return sum(steps for post in self.posts for steps, _ in post.calls)

    def ask(self, room: int, progress: float, published: Callable[[], Published]) -> None:
        """Ask those that have begun, and have least to do, for steps, as long as there is room for more.

        Args:
            room: Steps that may be asked for; each actor steps all its environments, so it may be E − 1 more.
            progress: How far training is, in [0, 1].
            published: Returns weights to act by.
        """
        for depth in range(DEPTH):
            for _ in self.posts:
                post = self.posts[self._turn % len(self.posts)]
                if room <= 0:
                    return
                self._turn += 1
                if post.beginning is not None or len(post.calls) > depth:
                    continue
                count = min(self._unroll, -(-room // self._envs))
                room -= count * self._envs
                self._call(post, count, progress, published())

    def collect(self, seconds: float) -> list[Report]:
        """Return what actors have told since; wait so long if that is nothing."""
        waiting = {post.number: post.awaited for post in self.posts if post.awaited is not None}
        if not waiting:
            return []
        reports = list[Report]()
        for number, there in zip(waiting, self.stage.ready(list(waiting.values()), seconds), strict=True):
            if not there:
                _watch(self.posts[number])
            elif (report := self._heard(self.posts[number])) is not None:
                reports.append(report)
        return reports

    def stop(self) -> None:
        """End all actors."""
        for post in self.posts:
            post.client.stop()

    def _begin(self, post: Post) -> None:
        post.heard_at, post.told = monotonic(), False
        try:
            post.beginning = post.client.call("begin")
        except ShardLost as error:
            self._lose(post, error)

    def _call(self, post: Post, count: int, progress: float, published: Published) -> None:
        try:
            answer = post.client.call("step", published.version, count, progress, parcel=published.weights)
        except ShardLost as error:
            self._lose(post, error)
            return
        if not post.calls:
            post.heard_at = monotonic()
        post.calls.append((count * self._envs, answer))

    def _heard(self, post: Post) -> Report | None:
        """Return the oldest answer of an actor; None: it has died, or only begun."""
        begins = post.beginning is not None
        try:
            report: Report | None = cast("Pending", post.awaited).result()
        except ShardLost as error:
            self._lose(post, error)
            return None
        post.heard_at, post.told = monotonic(), False
        if begins:
            post.beginning = None
            return None
        post.calls.popleft()
        post.fruitless = 0
        return report

    def _lose(self, post: Post, error: ShardLost) -> None:
        """Start another actor in place of one that died.

        Raises:
            StorageError: Too many have died in this place.
        """
        untold = sum(steps for steps, _ in post.calls)
        reason = str(error).partition("\n")[0]
        post.beginning = None
        post.calls.clear()
        post.client.stop()
        self.losses += 1
        self.lost_steps += untold
        post.fruitless += 1
        if post.fruitless > MOST_LOSSES:
            raise StorageError(
                f"actor {post.number} died {post.fruitless} times before it had stored a step, the last time of: "
                f"{reason}; look at its node's memory, and whether the environment ends its process"
            )
        post.life += 1
        log.warning(
            "actor %d (life %d) is lost, and %d steps that it was asked for: %s; another one is started",
            *(post.number, post.life - 1, untold, reason),
        )
        post.client = self.stage.start(post.number, post.life)
        self._begin(post)


def _watch(post: Post) -> None:
    """Say once of an actor that it has been silent for long."""
    if post.told or monotonic() - post.heard_at < SILENCE:
        return
    post.told = True
    if post.beginning is not None:
        log.warning(
            "actor %d has not begun within %.0f s, and training goes on without it: its environment takes long to "
            "make, or no node has the cores free that it is to get (see ray status)",
            *(post.number, SILENCE),
        )
    else:
        log.warning(
            "actor %d has not answered for %.0f s, and what it was asked for is waited for: its environment takes "
            "long, or hangs",
            *(post.number, SILENCE),
        )
