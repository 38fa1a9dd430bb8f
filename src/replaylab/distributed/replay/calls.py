"""Calls of Ray actors: the only module of the replay that imports Ray.

A call is one message of bytes, with large arrays beside it. Ray pickles several arguments and small arrays more slowly
than it sends them; it puts the large arrays into its object store, which readers on the same node share.
"""

import contextlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from replaylab.distributed.ray_session import HeadWatch, lacking
from replaylab.distributed.replay.ids import EPOCHS_PER_REPLAY
from replaylab.distributed.replay.shard import ActorLost, Declaration, Shard
from replaylab.errors import ConfigError, ReplayError, StorageError
from replaylab.extras import needs

with needs("RemoteReplay", "ray"):
    import ray
    from ray import exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NAMESPACE = "replaylab"
"""Ray namespace of all named actors; the names are RUN/NUMBER of shards and RUN/... of others."""

BESIDE = 65_536
"""Bytes from which an array travels beside the message."""

SECONDS_AT_ONCE = 4.0
"""Seconds that one wait for an answer lasts before the head node is checked again."""

SHUT_DOWN = "Ray was shut down"

LOST = (
    *(exceptions.RayActorError, exceptions.ObjectLostError, exceptions.NodeDiedError, exceptions.WorkerCrashedError),
    *(exceptions.RaySystemError, exceptions.OutOfMemoryError, exceptions.LocalRayletDiedError),
    exceptions.ActorUnschedulableError,
)
FOR_GOOD = exceptions.ActorDiedError, exceptions.ActorUnschedulableError


Parcels = tuple[bytes, list[Any]]


def packed(value: Any) -> Parcels:
    """Return a value as bytes, and its large arrays, which are not copied.

    Example:
        >>> head, large = packed(("draw", np.arange(3)))
        >>> unpacked(head, *large)
        ('draw', array([0, 1, 2]))
    """
    large: list[Any] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < BESIDE:
            return True
        large.append(np.frombuffer(raw, np.uint8))
        return False

    return pickle.dumps(value, 5, buffer_callback=stays), large


def unpacked(head: bytes, *large: Any) -> Any:
    """Return the value that `packed` packed; its large arrays are read-only views."""
    return pickle.loads(head, buffers=large)


class ActorBase:
    """A Ray actor whose methods are called by `RayClient`."""

    def handle(self, head: bytes, *large: Any) -> Any:
        """Call a method and return its packed result."""
        method, arguments = unpacked(head, *large)
        answer, arrays = packed(getattr(self, method)(*arguments))
        return [answer, *arrays] if arrays else answer


def restarts() -> int:
    """Return how often Ray has restarted this actor."""
    from ray._private import state  # the public run-time context has only whether it was restarted

    actor = state.actors(ray.get_runtime_context().get_actor_id()) or {}
    return int(actor.get("NumRestarts", 0))


def node_id() -> str:
    """Return Ray's id of this process's node."""
    return str(ray.get_runtime_context().get_node_id())


class RayPending:
    """The answer of an actor, to be awaited.

    Args:
        reference: Ray's.
    """

    def __init__(self, reference: Any) -> None:
        self.reference = reference

    def ready(self) -> bool:
        """Whether `result` would return or raise at once."""
        return not ray.is_initialized() or bool(ray.wait([self.reference], timeout=0, fetch_local=False)[0])

    def result(self) -> Any:
        """Wait for the answer and return it; large arrays are views of Ray's object store: copy them soon.

        Raises:
            ActorLost: The actor died.
            StorageError: The head node died.
        """
        while True:
            if not ray.is_initialized():  # ray.get would start a cluster
                raise ActorLost(SHUT_DOWN, for_good=True)
            HeadWatch.check()
            try:
                answer = ray.get(self.reference, timeout=SECONDS_AT_ONCE)
            except exceptions.GetTimeoutError:
                continue
            except LOST as error:
                raise ActorLost(str(error), isinstance(error, FOR_GOOD)) from error
            except exceptions.RayTaskError as error:
                raise _cause(error) from None
            return unpacked(*answer) if isinstance(answer, list) else unpacked(answer)


def _cause(error: Any) -> BaseException:
    """Return the error raised in another process, with its traceback unless it is a replaylab error."""
    if reason := lacking(str(error)):
        return ConfigError(reason)
    cause: BaseException = error.cause
    if not isinstance(cause, ReplayError):
        cause.add_note(f"raised in another process of the Ray cluster:\n{error}")
    return cause


class RayClient:
    """Calls the methods of an actor; it can be sent to other processes.

    Args:
        actor: Ray's handle.
    """

    def __init__(self, actor: Any) -> None:
        self.actor, self._killed = actor, False

    def call(self, method: str, *arguments: Any) -> RayPending:
        """Call a method without waiting for its answer; the arguments may change once this returns.

        Raises:
            ActorLost: The actor is dead.
        """
        if self._killed or not ray.is_initialized():  # it may still answer; or Ray would start a cluster
            raise ActorLost("the actor was ended" if self._killed else SHUT_DOWN, for_good=True)
        head, large = packed((method, arguments))
        try:
            return RayPending(self.actor.handle.remote(head, *large))
        except LOST as error:
            raise ActorLost(str(error), isinstance(error, FOR_GOOD)) from error

    def kill(self) -> None:
        """End the actor for good, and refuse calls from now on."""
        self._killed = True
        with contextlib.suppress(Exception):  # Ray may have ended before
            ray.kill(self.actor)


def start(cls: type[ActorBase], name: str, *arguments: Any, **options: Any) -> RayClient:
    """Start a named actor and return its client; errors of its methods are raised by calls."""
    if not ray.is_initialized():
        raise StorageError(f"{SHUT_DOWN}, and all shards with it; create the replay again, or load a snapshot")
    HeadWatch.wait()
    common: dict[str, Any] = {"namespace": NAMESPACE, "num_cpus": 0, "enable_task_events": False}
    actor = ray.remote(cls).options(name=name, **common | options).remote(*arguments)
    return RayClient(actor)


def placements(placement: str | Sequence[str] | None, shards: int) -> list[dict[str, Any]]:
    """Return Ray's options of each shard for `RemoteOptions.placement`.

    Raises:
        ConfigError: `placement` is invalid.
    """
    if placement is None or placement == "spread":
        return [{} if placement is None else {"scheduling_strategy": "SPREAD"}] * shards
    if not isinstance(placement, Sequence) or isinstance(placement, str) or len(placement) != shards:
        raise ConfigError(
            f'`placement` must be None, "spread" or a list of {shards} node ids, one for each shard, but got '
            f"{placement!r:.200}"
        )
    HeadWatch.wait()
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    if unknown := [str(node) for node in placement if node not in alive]:
        raise ConfigError(
            f"`placement` must name nodes of the cluster, but got {', '.join(unknown)}; see ray list nodes"
        )
    return [{"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)} for node in placement]


def named_actors() -> dict[str, list[str]]:
    """Return the names of all actors below each run, without the run."""
    runs: dict[str, list[str]] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        run, _, name = actor["name"].partition("/")
        if actor["namespace"] == NAMESPACE and name:
            runs.setdefault(run, []).append(name)
    return runs


def client_of(run: str, name: str) -> RayClient | None:
    """Return the client of a named actor, None if it has ended."""
    try:
        return RayClient(ray.get_actor(f"{run}/{name}", NAMESPACE))
    except ValueError:
        return None


class RayShard(ActorBase, Shard):
    """A shard in its own process, which Ray restarts when it dies."""

    def __init__(self, declaration: Declaration) -> None:
        Shard.__init__(self, declaration, restarts(), node_id())


def start_shards(
    run: str, declarations: Sequence[Declaration], placement: str | Sequence[str] | None
) -> list[RayClient]:
    """Start an actor for each shard, without waiting."""
    options = placements(placement, len(declarations))
    return [
        start(RayShard, f"{run}/{declared.number}", declared, max_restarts=EPOCHS_PER_REPLAY - 1, **more)
        for declared, more in zip(declarations, options, strict=True)
    ]
