"""Sees in the background to shards that are lost while the learner does something else, and to snapshots."""

import logging
from collections.abc import Callable
from threading import Event, Thread

from replaylab.errors import StorageError

log = logging.getLogger("replaylab.distributed")

PERIOD = 0.5
"""Seconds between two looks."""


class Supervisor:
    """Calls a function again and again, until it is stopped, or the function returns False or raises `StorageError`.

    Args:
        tend: The function; what else it raises is logged, and ends nothing.
        period: Seconds between two calls.
    """

    def __init__(self, tend: Callable[[], bool], period: float = PERIOD) -> None:
        self._stopped = Event()
        self._thread = Thread(target=self._run, args=(tend, period), name="replaylab-shards", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopped.set()

    def _run(self, tend: Callable[[], bool], period: float) -> None:
        while not self._stopped.wait(period):
            try:
                if not tend():
                    return
            except StorageError as error:
                log.warning("shards are not seen to any more: %s", error)
                return
            except Exception as error:
                log.warning("shards could not be seen to: %s", error)
