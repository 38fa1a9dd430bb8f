"""Objects in Ray actors, and calls of their methods.

A call is one message of bytes, with large arrays beside it. Ray pickles several arguments and small arrays more slowly
than it sends them; it puts the large arrays into its object store, which readers on the same node share.
"""

import contextlib
import os
import pickle
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

import replaylab
from replaylab.distributed.ray_session import HeadWatch, check_version, extend_import_path, import_path, lacking
from replaylab.distributed.replay.ids import EPOCHS_PER_REPLAY
from replaylab.distributed.replay.shard import ActorLost, Declaration, Shard
from replaylab.errors import ConfigError, ReplayError, StorageError
from replaylab.extras import needs

with needs("RemoteReplay", "ray"):
    import ray
    from ray import exceptions

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


def packed(value: Any) -> tuple[bytes, list[Any]]:
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


class Host:
    """A Ray actor that has the methods of an object, which its first call creates: errors come out of that call.

    Args:
        make: A pickled function that creates the object, from the number of restarts; it may need the user's modules.
        folders: Where the process that starts it looks for modules.
        version: The version of replaylab of the process that starts it.
    """

    def __init__(self, make: bytes, folders: Sequence[str], version: str) -> None:
        self._make, self._folders, self._version = make, folders, version

    @cached_property
    def _object(self) -> Any:
        from ray._private import state  # the public run-time context has only whether it was restarted

        check_version(self._version)
        os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed
        extend_import_path(self._folders)
        actor = state.actors(ray.get_runtime_context().get_actor_id()) or {}
        return pickle.loads(self._make)(int(actor.get("NumRestarts", 0)))

    def handle(self, head: bytes, *large: Any) -> Any:
        """Call a method and return its packed result."""
        method, arguments = unpacked(head, *large)
        answer, arrays = packed(getattr(self._object, method)(*arguments))
        return [answer, *arrays] if arrays else answer


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
    """Calls the methods of an actor's object; it can be sent to other processes.

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


def start(name: str, make: Callable[[int], Any], **options: Any) -> RayClient:
    """Start a named actor whose object `make` creates, with options of Ray, and return its client without waiting."""
    if not ray.is_initialized():
        raise StorageError(f"{SHUT_DOWN}, and all shards with it; create the replay again, or load a snapshot")
    HeadWatch.wait()
    common: dict[str, Any] = {"namespace": NAMESPACE, "num_cpus": 0, "enable_task_events": False}
    pickled = ray.cloudpickle.dumps(make)  # type: ignore[no-untyped-call]
    host = ray.remote(Host).options(name=name, **common | options)
    return RayClient(host.remote(pickled, import_path(), replaylab.__version__))


def start_shards(run: str, declarations: Sequence[Declaration], placement: str | None) -> list[RayClient]:
    """Start an actor for each shard, without waiting; see `RemoteOptions.placement`."""
    options: dict[str, Any] = {"max_restarts": EPOCHS_PER_REPLAY - 1}
    options |= {"scheduling_strategy": "SPREAD"} if placement == "spread" else {}

    def shard_of(declared: Declaration) -> Callable[[int], Shard]:
        return lambda restarts: Shard(declared, restarts, str(ray.get_runtime_context().get_node_id()))

    return [start(f"{run}/{declared.number}", shard_of(declared), **options) for declared in declarations]


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
