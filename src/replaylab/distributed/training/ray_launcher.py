"""Actors as Ray actors: the one module of training that knows Ray."""

import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import ray

import replaylab
from replaylab.distributed.own_code import digest_of, unpacked
from replaylab.distributed.ray_session import HeadWatch
from replaylab.distributed.replay import RemoteWriter
from replaylab.distributed.replay.shards.packing import Packed, answered
from replaylab.distributed.replay.shards.ray_transport import NAMESPACE, PATIENCE, RayClient, RayPending, parcel
from replaylab.distributed.replay.shards.transport import Pending
from replaylab.distributed.training.actor import Actor, ActorDeclaration, Report
from replaylab.distributed.versions import check_version
from replaylab.learners.api.protocols import State


class RayActor:
    """An actor in its own process, made by its first call, `begin`, so that errors come out of that.

    Args:
        code: The user's own modules, packed; b"": none.
        declared: What it is made from, pickled, since that may need them.
        writer: Of its environments.
        version: Of replaylab, where it is started.
    """

    def __init__(self, code: bytes, declared: bytes, writer: RemoteWriter, version: str) -> None:
        self._code, self._declared, self._writer, self._version = code, declared, writer, version

    def handle(self, message: Packed, parcel: Packed | None = None) -> Packed:
        """Make a packed call, as `RayClient` sends it."""
        return answered(self, message, parcel)

    def begin(self) -> None:
        """Make its environments and its copy of the policy."""
        check_version(self._version)
        os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed
        if self._code:
            sys.path.insert(0, str(unpacked(digest_of(self._code), lambda: self._code)))
        self._actor = Actor(pickle.loads(self._declared), self._writer)

    def step(self, version: int, count: int, progress: float, weights: State) -> Report:
        """Take steps; see `Actor.step`."""
        return self._actor.step(version, count, progress, weights)


@dataclass(frozen=True)
class RayLauncher:
    """Starts actors in the Ray cluster that this process is connected to.

    Attributes:
        run: What tells its actors from those of other trainings.
        cores: That are reserved for each.
        code: The user's own modules, packed.
        declare: Returns what an actor is made from, by number and life.
        writer: Returns a writer for an actor, by number.
    """

    run: str
    cores: float
    code: bytes
    declare: Callable[[int, int], ActorDeclaration]
    writer: Callable[[int], RemoteWriter]
    _shipped: list[Any] = field(default_factory=list, init=False)

    def start(self, number: int, life: int) -> RayClient:
        """Start an actor; Ray does not start it again by itself."""
        HeadWatch.wait()
        if not self._shipped:
            self._shipped.append(ray.put(self.code))
        options = {"name": f"{self.run}/actor-{number}/{life}", "namespace": NAMESPACE, "max_restarts": 0}
        remote_actor = ray.remote(RayActor).options(**options, num_cpus=self.cores, scheduling_strategy="SPREAD")
        declared = ray.cloudpickle.dumps(self.declare(number, life))  # type: ignore[no-untyped-call]
        actor = remote_actor.remote(self._shipped[0], declared, self.writer(number), replaylab.__version__)
        return RayClient(number, life, actor, PATIENCE, "actor")

    def publish(self, weights: State) -> Any:
        """Return packed weights for all actors; large ones are put into Ray's object store once."""
        return parcel((weights,))

    def ready(self, pendings: list[Pending], seconds: float) -> list[bool]:
        """Return which answers have arrived; if none has, wait for one, for at most `seconds`."""
        HeadWatch.check()
        references = [pending.reference for pending in cast("list[RayPending]", pendings)]
        if seconds:
            ray.wait(references, num_returns=1, timeout=seconds, fetch_local=False)
        answered = set(ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)[0])
        return [reference in answered for reference in references]
