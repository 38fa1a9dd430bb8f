"""Where a training tells how it is, for those who ask from elsewhere: a Ray actor that holds its last figures."""

from contextlib import suppress
from dataclasses import asdict
from time import monotonic
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replaylab.distributed.replay import RemoteReplay
from replaylab.distributed.replay.shards.ray_transport import NAMESPACE
from replaylab.distributed.training.actor_pool import ActorPool
from replaylab.distributed.training.learner import LearnerRun

NAME = "training"
"""What the actor is called, below the run."""

PERIOD = 1.0
"""Seconds between two tellings, at least."""


class StatusBoard:
    """Holds what was reported last."""

    def __init__(self) -> None:
        self._figures: dict[str, Any] = {}

    def tell(self, figures: dict[str, Any]) -> None:
        """Take figures in place of the last ones."""
        self._figures = figures

    def read(self) -> dict[str, Any]:
        """Return the last ones."""
        return self._figures


class StatusReporter:
    """Tells a board of a training, now and then, and waits for nothing.

    Args:
        run: What tells its actors from those of other trainings.
    """

    def __init__(self, run: str) -> None:
        options: dict[str, Any] = {"name": f"{run}/{NAME}", "namespace": NAMESPACE, "num_cpus": 0, "max_restarts": 0}
        node_id = ray.get_runtime_context().get_node_id()  # elsewhere it might end before the training does
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=True)
        self._board: Any = ray.remote(StatusBoard).options(**options).remote()
        self._then, self._before = -PERIOD, (0, 0)

    def close(self) -> None:
        """End the board."""
        with suppress(Exception):  # Ray may be gone before it
            ray.kill(self._board)

    def __call__(self, run: LearnerRun, actors: ActorPool, remote: RemoteReplay) -> None:
        """Tell it, if it is time."""
        now = monotonic()
        seconds = now - self._then
        if seconds < PERIOD:
            return
        counts = run.clock.steps, run.agents.updates
        rates = [(count - before) / seconds for count, before in zip(counts, self._before, strict=True)]
        self._then, self._before = now, counts
        figures = {
            "environment": run.env_id,
            "learner": type(run.configuration.learner).__name__,
            "steps": counts[0],
            "total_steps": run.clock.total,
            "steps_per_second": rates[0],
            "updates": counts[1],
            "updates_per_second": rates[1],
            "skipped_updates": run.skipped,
            "actors": len(actors.slots),
            "actor_losses": actors.losses,
            "lost_actor_steps": actors.lost_steps,
            "replay": asdict(remote.stats()),
        }
        self._board.tell.remote(figures)
