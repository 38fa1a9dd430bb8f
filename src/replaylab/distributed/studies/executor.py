"""The executor whose workers are Ray's: on this machine, or on all machines of a cluster."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import replaylab
from replaylab.arguments import POSITIVE, optional, takes, text, whole
from replaylab.distributed.ray_session import HeadWatch, RaySession, import_path, lacking, ray_share
from replaylab.errors import ConfigError, ReplayError
from replaylab.study.execution.executor import Event, Handler, Lost, Progress, Task, TrainTask
from replaylab.study.results import provenance

_SECONDS_BETWEEN_COUNTS = 1.0
"""Seconds for which a count of the cluster's cores is used."""


def _cores(value: Any) -> float:
    return ray_share(POSITIVE(value))


class RayExecutor:
    """Performs each task as a task of Ray, which places it where cores are free.

    If a worker or a node dies, its tasks are retried up to three times; those that raise, or end their own process, are
    not. It connects at the first task, until `close`.

    Args:
        address: ``"host:port"`` of a Ray cluster, or ``"auto"`` for the one that runs on this machine; None: the one
            that this process is connected to, or else a new Ray on this machine, which ends with `close`.
        workers: Number of tasks at once. None: as many as the nodes have cores and GPUs for at the time. If there are
            more, they wait within Ray, and a cluster with autoscaling adds nodes.
        cores: Cores that Ray reserves for each task: a part of one, or whole ones. A task always trains in one thread.
        gpus: GPUs that Ray reserves for each task, likewise; without any, a task sees none.

    Raises:
        ConfigError: The address is invalid, or a number is out of its range.
        MissingExtraError: Ray is not installed.
    """

    @takes(address=optional(text), workers=optional(whole()), cores=_cores, gpus=ray_share)
    def __init__(
        self, address: str | None = None, *, workers: int | None = None, cores: float = 1.0, gpus: float = 0.0
    ) -> None:
        self._address, self._workers, self._cores, self._gpus = address, workers, cores, gpus
        tasks = workers or max(1, int(provenance.cores() / cores))
        self._session = RaySession(address, cores=math.ceil(tasks * cores))
        self._tickets, self._running = count(), dict[Any, int]()
        self._perform: Any = None
        self._counted = -math.inf, 0  # when the cluster's cores were counted, and the result

    @property
    def shares_disk(self) -> bool:
        """Whether its workers see this machine's disk, as those of a Ray that this executor has started do."""
        if self._address is not None:
            return False
        self._connect()
        return self._session.owned

    @property
    def slots(self) -> int:
        """Number of tasks at once.

        Raises:
            ConfigError: There is no such cluster, or no node of it is large enough for one task.
        """
        if self._workers is not None:
            return self._workers
        if time.monotonic() - self._counted[0] > _SECONDS_BETWEEN_COUNTS:
            self._counted = time.monotonic(), self._count()
        return self._counted[1]

    def submit(self, task: Task) -> int:
        """Hand a task to Ray."""
        self._connect()
        if isinstance(task, TrainTask) and task.checkpoints is not None:
            task = replace(task, checkpoints=str(Path(task.checkpoints).absolute()))
        perform = self._perform.options(name=task.chunk.label)
        stream = perform.remote(task, import_path(), replaylab.__version__)
        ticket = self._running[stream] = next(self._tickets)
        return ticket

    def wait(self, handle: Handler) -> None:
        """Wait up to a second for events.

        Raises:
            ConfigError: A node of the cluster lacks replaylab, or has another version of it.
            StorageError: The head node of the cluster is dead.
        """
        import ray

        HeadWatch.check()
        ready, _ = ray.wait(list(self._running), timeout=1.0)  # no longer, so that Ctrl-C is heard
        for stream in ready:
            event, ticket = _next_event(stream), self._running[stream]
            if not isinstance(event, Progress):
                del self._running[stream]
            handle(ticket, event)

    def close(self) -> None:
        """Cancel the tasks in flight; disconnect, and stop a Ray started here."""
        if not self._session.owned:
            import ray

            for stream in self._running:
                with contextlib.suppress(ray.exceptions.RayError, ValueError, TypeError):
                    ray.cancel(stream, force=True)
        self._running, self._perform, self._counted = {}, None, (-math.inf, 0)
        self._session.close()

    def _connect(self) -> None:
        if self._perform is None:
            self._session.open()
            import ray

            from replaylab.distributed.studies.worker import perform_task

            self._perform = ray.remote(
                num_cpus=self._cores, num_gpus=self._gpus, max_retries=0, num_returns="streaming"
            )(perform_task)
            if self._session.owned and self._address is None:
                self._count()  # no node will ever join it

    def _count(self) -> int:
        """Return the number of tasks that the nodes have room for."""
        import ray

        self._connect()
        HeadWatch.wait()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        room = [(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in nodes]
        slots = sum(
            int(min(cores / self._cores, gpus / self._gpus if self._gpus else math.inf) + 1e-9) for cores, gpus in room
        )
        if slots == 0 and any("CPU" in node for node in nodes):
            most = [max(counts) for counts in zip(*room, strict=True)]
            raise ConfigError(
                f"A node of the Ray cluster must have {self._cores:g} cores and {self._gpus:g} GPUs for each chunk, "
                f"but none has more than {most[0]:g} cores and {most[1]:g} GPUs; ask for less, or give `workers` if "
                "nodes will join"
            )
        return slots


def _next_event(stream: Any) -> Event:
    """Return the next event of a task, which has arrived.

    Raises:
        ConfigError: The task's node cannot perform any task.
    """
    import ray
    from ray import exceptions

    try:
        event: Event = ray.get(next(stream))
        return event
    except StopIteration:
        return Lost("The Ray worker ended without an answer", retriable=True)
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, OSError) and not isinstance(error.cause, ReplayError):
            return Lost(f"The node of the Ray worker could not begin ({error.cause})", retriable=True)
        words = str(error)
        unable = f"A Ray worker could not perform a task: {words.strip().splitlines()[-1]}"
        reason = str(error.cause) if isinstance(error.cause, ConfigError) else lacking(words) or unable
        raise ConfigError(reason) from error
    except exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        return Lost(f"Ray lost the task ({type(error).__name__}: {reason})", retriable=True)
