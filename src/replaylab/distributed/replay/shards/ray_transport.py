"""Shards as Ray actors: the one module of the replay that knows Ray."""

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from replaylab.distributed.ray_session import HeadWatch
from replaylab.distributed.replay.shards.packing import Packed, answered, packed, unpacked
from replaylab.distributed.replay.shards.shard import Shard, Tally
from replaylab.distributed.replay.shards.transport import Declaration, ShardLost
from replaylab.distributed.versions import lacking
from replaylab.errors import ConfigError, ReplayError, StorageError
from replaylab.extras import needs

with needs("RemoteReplay", "ray"):
    import ray
    from ray import exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

log = logging.getLogger("replaylab.distributed")

NAMESPACE = "replaylab"

PATIENCE = 120.0
"""Seconds until a shard that neither answers nor is known to be dead counts as lost; a later answer is refused."""

SECONDS_AT_ONCE = 4.0
"""How long an answer is waited for before the head node is looked at again."""

LONG = ("survey", "begin", "save")
"""Calls that may take any time, and with them those that came after."""

SHUT_DOWN = "Ray was shut down"

LOST = (
    *(exceptions.RayActorError, exceptions.ActorUnavailableError, exceptions.ObjectLostError),
    *(exceptions.NodeDiedError, exceptions.WorkerCrashedError),
    *(exceptions.RaySystemError, exceptions.TaskCancelledError),
    *(exceptions.OutOfMemoryError, exceptions.LocalRayletDiedError),  # Ray ends workers where memory runs short
)


class RayShard(Shard):
    """A shard that knows on which node it is."""

    def handle(self, message: Packed, parcel: Packed | None = None) -> Packed:
        """Make a packed call; one method for all, and one argument, cost Ray less than many."""
        return answered(self, message, parcel)

    def node(self) -> str:
        """Return Ray's id of the node that it is on."""
        return str(ray.get_runtime_context().get_node_id())

    def figures(self) -> tuple[dict[str, Any], Tally]:
        """Return what it has counted, and its node."""
        counted, tally = super().figures()
        return counted | {"node": self.node()}, tally


@dataclass(frozen=True)
class RayPending:
    """An answer of an actor to come.

    Attributes:
        reference: Ray's.
        patience: Seconds until the actor counts as lost, None: as long as Ray does not know it to be dead.
        name: Whose answer it is.
        behind: Unanswered calls before it that may take any time.
    """

    reference: Any
    patience: float | None
    name: str
    behind: Sequence[Any] = ()

    def ready(self) -> bool:
        """Whether it is there."""
        return bool(ray.wait([self.reference], timeout=0, fetch_local=False)[0])

    def result(self) -> Any:
        """Return it: large arrays in it are views of Ray's object store, to be copied out at once."""
        while True:
            if not ray.is_initialized():  # any call would start a cluster
                raise ShardLost(SHUT_DOWN)
            waiting = _unanswered(self.behind)
            try:
                return self._unpacked()
            except exceptions.GetTimeoutError as error:
                if not waiting:
                    raise ShardLost(str(error)) from error
                log.warning("%s, which is being saved or made, has not answered for %.0f s", self.name, self.patience)

    def _unpacked(self) -> Any:
        try:
            return unpacked(self._value())
        except exceptions.GetTimeoutError:
            raise
        except exceptions.ActorUnschedulableError as error:
            raise StorageError(f"{self.name} cannot be placed: {str(error).splitlines()[0]}") from None
        except LOST as error:
            raise ShardLost(str(error)) from error
        except exceptions.RayTaskError as error:
            raise _cause(error) from None
        except exceptions.RayError as error:
            raise StorageError(f"Ray has no answer of {self.name}: {str(error).strip()}") from error

    def _value(self) -> Any:
        """Wait for the packed answer, as long as the head node is alive."""
        seconds_left = math.inf if self.patience is None else self.patience
        while True:
            HeadWatch.check()
            seconds = min(seconds_left, SECONDS_AT_ONCE)
            try:
                return ray.get(self.reference, timeout=seconds)
            except exceptions.GetTimeoutError:
                seconds_left -= seconds
                if seconds_left <= 0.0:
                    raise


def _cause(error: Any) -> BaseException:
    """Return the error raised in another process, with its traceback unless it is a replaylab error."""
    if reason := lacking(str(error)):
        return ConfigError(reason)
    cause: BaseException = error.cause
    if not isinstance(cause, ReplayError):
        cause.add_note(f"raised in another process of the Ray cluster:\n{error}")
    return cause


@dataclass(frozen=True)
class RayClient:
    """A shard that is a Ray actor.

    Where it is sent to, it is patient without end: only who knows what else the shard does, and starts another in its
    slot, counts it as lost; by then it is killed, and Ray reports it to everybody.

    Attributes:
        number: The shard's place.
        epoch: Its epoch.
        actor: Ray's handle.
        patience: See `RayPending`.
        kind: What it is: "shard", or "actor", whose life is its epoch.
    """

    number: int
    epoch: int
    actor: Any
    patience: float | None = None
    kind: str = "shard"
    _long: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __reduce__(self) -> Any:
        return RayClient, (self.number, self.epoch, self.actor, None, self.kind)

    @property
    def name(self) -> str:
        """What it is called in logs and errors."""
        return f"{self.kind} {self.number} ({'epoch' if self.kind == 'shard' else 'life'} {self.epoch})"

    def call(self, method: str, *arguments: Any, parcel: Any = None) -> RayPending:
        """Call a method of the actor."""
        small = parcel if isinstance(parcel, bytes) else None  # one argument costs Ray less than two
        message = packed((method, arguments, small))
        if not ray.is_initialized():  # the call would start a cluster
            raise ShardLost(SHUT_DOWN)
        try:
            reference = self.actor.handle.remote(message, *([parcel] if parcel is not small else []))
        except LOST as error:
            raise ShardLost(str(error)) from error
        if self._long:
            pending = list(self._long)
            unanswered = _unanswered(pending)
            for long_call in pending:  # one by one: another thread may append meanwhile
                if long_call not in unanswered:
                    with suppress(ValueError):
                        self._long.remove(long_call)
        if method in LONG:
            self._long.append(reference)
            return RayPending(reference, None, self.name)
        return RayPending(reference, self.patience, self.name, tuple(self._long))

    def stop(self) -> None:
        """Kill the actor."""
        with suppress(Exception):  # Ray may be gone before it
            ray.kill(self.actor)


@dataclass(frozen=True)
class RayTransport:
    """Starts shards in the Ray cluster that this process is connected to.

    Attributes:
        run: What tells its actors from those of other replays.
        placement: None, "spread", or a node's id for each shard.
    """

    run: str
    placement: str | tuple[str, ...] | None
    background: bool = True
    _started: dict[int, RayClient] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> Any:
        return RayTransport, (self.run, self.placement, self.background)

    def start(self, declaration: Declaration) -> RayClient:
        """Start an actor; Ray does not start it again by itself."""
        _check_connected()
        number, epoch = declaration.number, declaration.epoch
        options = {"name": f"{self.run}/{number}/{epoch}", "namespace": NAMESPACE, "num_cpus": 0, "max_restarts": 0}
        options["enable_task_events"] = False  # Ray would keep a record of every call
        if self.placement == "spread":
            options["scheduling_strategy"] = "SPREAD"
        elif self.placement is not None:
            node = self.placement[number]
            if node in _nodes():  # a shard of a node that died is started elsewhere
                options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(RayShard).options(**options).remote(declaration)
        self._started[number] = RayClient(number, epoch, actor, PATIENCE)
        return self._started[number]

    def newest(self, number: int, after: int) -> RayClient | None:
        """Return the actor of this slot and of the highest epoch above `after`."""
        _check_connected()
        epoch, name = newest_actors().get(self.run, {}).get(str(number), (-1, ""))
        if epoch <= after:
            return None
        if number in self._started and self._started[number].epoch == epoch:
            return self._started[number]
        try:
            return RayClient(number, epoch, ray.get_actor(name, NAMESPACE))
        except ValueError:  # it has died since
            return None

    def parcel(self, contents: tuple[Any, ...]) -> Any:
        """Return the last arguments of a call, packed."""
        return parcel(contents)

    def batch_room(self) -> int:
        """Return the bytes of the smallest object store."""
        return int(min(node["Resources"].get("object_store_memory", 0) for node in _alive()))


def newest_actors() -> dict[str, dict[str, tuple[int, str]]]:
    """Return epoch and name of the newest actor of every slot, by run and slot."""
    newest: dict[str, dict[str, tuple[int, str]]] = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        run, _, rest = actor["name"].partition("/")
        slot, _, epoch = rest.partition("/")
        if actor["namespace"] == NAMESPACE and rest:
            slots = newest.setdefault(run, {})
            slots[slot] = max(slots.get(slot, (-1, "")), (int(epoch or 0), actor["name"]))
    return newest


def parcel(contents: tuple[Any, ...]) -> Any:
    """Return packed arguments: in the caller's memory, or, if they are large, in its node's object store."""
    content = packed(contents)
    return content if isinstance(content, bytes) else ray.put(content)


def connected(run: str, placement: Any, shards: int) -> RayTransport:
    """Return the transport of the cluster that this process is connected to.

    Raises:
        ConfigError: `placement` is invalid.
    """
    if placement is None or placement == "spread":
        return RayTransport(run, placement)
    if not isinstance(placement, Sequence) or isinstance(placement, str) or len(placement) != shards:
        raise ConfigError(
            f'`placement` must be None, "spread" or a list of {shards} node ids, one for each shard, but got '
            f"{placement!r:.200}"
        )
    if unknown := [str(node) for node in placement if node not in _nodes()]:
        raise ConfigError(f"`placement` names nodes that the cluster has not: {', '.join(unknown)}; see ray list nodes")
    return RayTransport(run, tuple(placement))


def _check_connected() -> None:
    """Raise `StorageError` if Ray would start another cluster, or wait for a dead head node."""
    if not ray.is_initialized():
        raise StorageError(f"{SHUT_DOWN}, and all shards with it; create the replay again, or load a snapshot")
    HeadWatch.wait()


def _unanswered(references: Sequence[Any]) -> list[Any]:
    if not references:
        return []
    return list(ray.wait(list(references), num_returns=len(references), timeout=0, fetch_local=False)[1])


def _alive() -> list[dict[str, Any]]:
    HeadWatch.wait()
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _nodes() -> list[str]:
    return [node["NodeID"] for node in _alive()]
