"""The N actors, kept at work: asked for steps, listened to, and started anew where they die."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from replaylab.distributed.replay.shards.transport import Pending, ShardLost
from replaylab.distributed.training.actor import Published, Report
from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

DEPTH = 2
"""Calls on their way to each actor: while one's answer travels, the next is at work."""

MOST_LOSSES = 5
"""Actors of one place that may die one after the other without having stored a step."""


class ActorClient(Protocol):
    """An actor, as the crew sees it. It answers calls in the order in which they came."""

    def call(self, method: str, *arguments: Any, parcel: Any) -> Pending:
        """Call a method of the `Actor`, without waiting for its answer; raise `ShardLost` where it is known dead.

        Args:
            method: Which.
            arguments: Its arguments but the last.
            parcel: The last, of `Stage.publish`.
        """
        ...

    def stop(self) -> None:
        """End it, if it is still there."""
        ...


class Stage(Protocol):
    """Starts actors, in Ray or, in tests, in this process."""

    def start(self, number: int, life: int) -> ActorClient:
        """Start an actor, without waiting for it; what goes wrong is raised by its first call."""
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
        calls: What it was asked for and has not answered, oldest first: steps, and the answer to come.
        fruitless: Actors that died one after the other without an answer.
    """

    number: int
    life: int
    client: ActorClient
    calls: deque[tuple[int, Pending]] = field(default_factory=deque)
    fruitless: int = 0


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
        self.posts = [Post(number, life, stage.start(number, life)) for number, life in enumerate(lives)]
        self.losses = self.lost_steps = 0
        self._turn = 0

    @property
    def in_flight(self) -> int:
        """Steps that actors are asked for and have told nothing of yet."""
        return sum(steps for post in self.posts for steps, _ in post.calls)

    def ask(self, room: int, published: Callable[[], Published]) -> None:
        """Ask those that have least to do for steps, as long as there is room for more.

        Args:
            room: Steps that may be asked for; each actor steps all its environments, so it may be E − 1 more.
            published: Returns weights to act by.
        """
        for depth in range(DEPTH):
            for _ in self.posts:
                post = self.posts[self._turn % len(self.posts)]
                if room <= 0:
                    return
                self._turn += 1
                if len(post.calls) > depth:
                    continue
                count = min(self._unroll, -(-room // self._envs))
                room -= count * self._envs
                self._call(post, count, published())

    def collect(self, seconds: float) -> list[Report]:
        """Return what actors have told since; wait so long if that is nothing."""
        waiting = [post for post in self.posts if post.calls]
        if not waiting:
            return []
        ready = self.stage.ready([post.calls[0][1] for post in waiting], seconds)
        heard = [self._heard(post) for post, there in zip(waiting, ready, strict=True) if there]
        return [report for report in heard if report is not None]

    def stop(self) -> None:
        """End all actors."""
        for post in self.posts:
            post.client.stop()

    def _call(self, post: Post, count: int, published: Published) -> None:
        try:
            answer = post.client.call("step", published.version, count, parcel=published.weights)
        except ShardLost as error:
            self._lose(post, error)
            return
        post.calls.append((count * self._envs, answer))

    def _heard(self, post: Post) -> Report | None:
        """Return the oldest answer of an actor; None: it has died."""
        try:
            report: Report = post.calls[0][1].result()
        except ShardLost as error:
            self._lose(post, error)
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
