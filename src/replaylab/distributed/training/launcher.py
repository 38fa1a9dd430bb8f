"""Processes of a training as Ray actors: the one module of training that imports Ray."""

from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from replaylab.distributed.replay.calls import RayClient, start

MOST_RESTARTS = 20
"""Restarts of one process in a training, at most: after that the training ends."""


class Launcher:
    """Starts processes in the Ray cluster that this process is connected to.

    Args:
        run: Name of the replay's run, with which the names of all processes begin.
        cores: Cores that Ray reserves for each process that steps environments.
    """

    def __init__(self, run: str, cores: float) -> None:
        self._run, self._cores = run, cores
        self._started: list[RayClient] = []

    def start(
        self, name: str, make: Callable[[int], Any], *, anywhere: bool = False, has_state: bool = False
    ) -> RayClient:
        """Start a process whose object `make` creates, on this node or, to step environments, anywhere.

        If it dies, Ray restarts it and repeats calls without an answer, except if it has a state.
        """
        restarts = 0 if has_state else MOST_RESTARTS
        options: dict[str, Any] = {"max_restarts": restarts, "max_task_retries": restarts}
        if anywhere:
            options |= {"num_cpus": self._cores, "scheduling_strategy": "SPREAD"}
        else:
            here = str(ray.get_runtime_context().get_node_id())
            options |= {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
        self._started.append(start(f"{self._run}/{name}", make, **options))
        return self._started[-1]

    def stop(self) -> None:
        """End all processes, the first one last."""
        for process in reversed(self._started):
            process.kill()
