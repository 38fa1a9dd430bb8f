"""The N actors and their hub, as the learner sees them."""

import logging
from collections.abc import Callable
from typing import Any

from replaylab.distributed.ray_session import HeadWatch
from replaylab.distributed.replay.shard import ActorLost
from replaylab.distributed.training.actor import Actor
from replaylab.distributed.training.hub import SILENCE, Hub, Report
from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

HUB = "training"
"""Name of the hub's process within the run."""


class ActorPool:
    """All actors. Ray restarts those that die, and they run again, with another life.

    Args:
        launcher: Starts processes; see `Launcher`.
        make: Returns a function that creates an actor from its life, for a slot and a client of the hub.
        count: N.
        envs: E environments of each actor.
        stored: Steps that are stored already.
    """

    def __init__(
        self,
        launcher: Any,
        make: Callable[[int, Any], Callable[[int], Actor]],
        count: int,
        envs: int,
        stored: int,
    ) -> None:
        self._hub: Any = launcher.start(HUB, lambda _: Hub(count, envs, stored), has_state=True)
        self._runs = [
            launcher.start(f"actor-{number}", make(number, self._hub), anywhere=True).call("run")
            for number in range(count)
        ]
        self._published: Any = None
        self._silent = set[int]()

    @property
    def is_ready(self) -> bool:
        """Whether `publish` would not wait for the hub."""
        return self._published is None or self._published.ready()

    def publish(self, *news: Any) -> Report:
        """Send the learner's news to the hub, as `Hub.publish` takes them, and return the answer to the last call.

        Raises:
            StorageError: The hub is dead.
        """
        report, silent = Report(), list[int]()
        if self._published is not None:
            report, silent = self._of_hub(self._published)
        self._published = self._hub.call("publish", *news)
        for number in {*silent} - self._silent:
            log.warning(
                "actor %d has not called for %.0f s, and training continues without it: no node has the cores that it "
                "reserves (see ray status), or its environment is slow to create or to step, or hangs",
                *(number, SILENCE),
            )
        if report.lost:
            log.warning("%d steps were lost with actors or shards, which restart", report.lost)
        self._silent = {*silent}
        return report

    def check(self) -> None:
        """Raise the error that ended an actor, for example of its environment.

        Raises:
            StorageError: An actor died too often, or the cluster's head node is dead.
        """
        HeadWatch.check()
        for number, run in enumerate(self._runs):
            try:
                if run.ready():
                    run.result()
            except ActorLost as error:
                self._of_hub(self._hub.call("read"))
                raise StorageError(
                    f"actor {number} died too often, the last time because of: {_line(error)}; check the memory of its "
                    "node, and whether the environment ends its process, then continue from the last checkpoint"
                ) from error

    @staticmethod
    def _of_hub(answer: Any) -> Any:
        try:
            return answer.result()
        except ActorLost as error:
            raise StorageError(f"the hub died: {_line(error)}; continue from the last checkpoint") from error


def _line(error: ActorLost) -> str:
    return str(error).partition("\n")[0]
