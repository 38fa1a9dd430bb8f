"""The seam between the distributions of a replay in shards and what carries its calls: Ray, or, in tests, this process.

A shard answers the calls of one caller in the order in which they came. Whatever the carrier raises where a shard does
not answer any more becomes `ShardLost`; what the shard itself raises comes out as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import replaylab


class ShardLost(Exception):  # noqa: N818 - callers never see it: the call is made good elsewhere
    """A shard does not answer any more."""


@dataclass(frozen=True)
class Declaration:
    """What a shard is made from.

    Attributes:
        number: Its place among the shards.
        epoch: How many of this slot there were before.
        options: The constructor's arguments of its `ReplayBuffer`.
        seed: What its random stream is made from, with number and epoch.
        folder: Where its snapshot is, None: it begins empty. One that is not there is as none.
        load_options: Arguments of `ReplayBuffer.load`.
        absorbs: Folders of other shards' snapshots; it takes its part of their steps in.
        parts: Of how many parts.
        version: Of replaylab, where the replay is.
    """

    number: int
    epoch: int
    options: Mapping[str, Any]
    seed: int
    folder: str | None = None
    load_options: Mapping[str, Any] | None = None
    absorbs: tuple[str, ...] = ()
    parts: int = 1
    version: str = replaylab.__version__


class Pending(Protocol):
    """An answer to come."""

    def ready(self) -> bool:
        """Whether `result` would return, or raise, at once."""

    def result(self) -> Any:
        """Wait for the answer and return it.

        Raises:
            ShardLost: There will be none.
        """


class ShardClient(Protocol):
    """A shard, as its callers see it; it can be sent to other processes.

    Attributes:
        number: The shard's place among the shards.
        epoch: Its epoch.
    """

    @property
    def number(self) -> int: ...  # noqa: D102 - documented above

    @property
    def epoch(self) -> int: ...  # noqa: D102

    def call(self, method: str, *arguments: Any, parcel: Any = None) -> Pending:
        """Call a method of the `Shard`, without waiting for its answer.

        Args:
            method: Which.
            arguments: Its arguments; they may change once this returns.
            parcel: What follows them, of `Transport.parcel`; None: nothing.
        """

    def stop(self) -> None:
        """End it, if it is still there."""


class Transport(Protocol):
    """Starts shards and finds them again; it can be sent to other processes.

    Attributes:
        background: Whether shards work beside this process, so that they are to be seen to in the background.
    """

    @property
    def background(self) -> bool: ...  # noqa: D102

    def start(self, declaration: Declaration) -> ShardClient:
        """Start a shard, without waiting for it. What goes wrong is raised by its first call, `begin`."""

    def newest(self, number: int, after: int) -> ShardClient | None:
        """Return the shard of this slot and of the highest epoch above `after`, None while there is none."""

    def parcel(self, contents: tuple[Any, ...]) -> Any:
        """Return arguments so that they can be sent again, whatever becomes of their arrays."""

    def batch_room(self) -> int:
        """Return how many bytes of answers there is room for at once."""
