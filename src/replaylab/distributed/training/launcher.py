"""Processes of a training as Ray actors: the one module of training that imports Ray."""

import os
import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import replaylab
from replaylab.distributed.own_code import digest_of, unpacked
from replaylab.distributed.ray_session import check_version
from replaylab.distributed.replay.calls import ActorBase, RayClient, node_id, restarts, start

MOST_RESTARTS = 20
"""Restarts of one process in a training, at most: after that the training ends."""


class Part(ActorBase):
    """A Ray actor that has the methods of an object, which its first call creates: errors come out of that call.

    Args:
        code: The user's own modules, packed; b"" without any.
        make: A pickled function that creates the object, from the number of restarts; it may need these modules.
        version: The learner's version of replaylab.
    """

    def __init__(self, code: bytes, make: bytes, version: str) -> None:
        self._code, self._make, self._version = code, make, version

    @cached_property
    def _object(self) -> Any:
        check_version(self._version)
        os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed
        if self._code:
            sys.path.insert(0, str(unpacked(digest_of(self._code), lambda: self._code)))
        return pickle.loads(self._make)(restarts())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._object, name)


class Launcher:
    """Starts processes in the Ray cluster that this process is connected to.

    Args:
        run: Name of the replay's run, with which the names of all processes begin.
        cores: Cores that Ray reserves for each process that steps environments.
        code: The user's own modules, packed.
    """

    def __init__(self, run: str, cores: float, code: bytes) -> None:
        self._run, self._cores, self._code = run, cores, code
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
            options |= {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id(), soft=False)}
        pickled = ray.cloudpickle.dumps(make)  # type: ignore[no-untyped-call]
        self._started.append(start(Part, f"{self._run}/{name}", self._code, pickled, replaylab.__version__, **options))
        return self._started[-1]

    def stop(self) -> None:
        """End all processes, the first one last."""
        for process in reversed(self._started):
            process.kill()
