"""How steps come into the shards: numbered, acknowledged, sent again where a shard is lost, applied once."""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread, current_thread
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.routes import Routes
from replaylab.distributed.replay.shards.ids import global_ids
from replaylab.distributed.replay.shards.outbox import Outbox
from replaylab.distributed.replay.shards.shard import OutOfOrder
from replaylab.distributed.replay.shards.shard_pool import ShardPool
from replaylab.distributed.replay.shards.transport import ShardClient, ShardLost, Transport
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import ReplayBuffer
from replaylab.trees import leaves, map_leaves, take

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

PATIENCE = 120.0
"""Seconds that a writer waits for a shard in place of one that is lost."""

POLL = 0.02

LINGER = 0.005
"""Seconds that a message is held back at most."""

LONGEST_PAUSE = 1.0
"""Seconds between two attempts to send what is held, where they fail."""


class RemoteWriter:
    """Stores one environment worker's steps in the shards of a `RemoteReplay`, from whatever process it is sent to.

    `RemoteReplay.writer` makes it. What it is given is on its way when `add` returns, or, where earlier steps are on
    theirs, some milliseconds later, together with what comes meanwhile; a shard that has stored a step acknowledges it.
    Where a shard is lost, what it had not acknowledged is sent again to the one in its place, and stored once. An
    episode lives in one shard, the environment's next one in the next. Sent elsewhere after `flush`, a
    writer continues with its episodes; a new one for the same environments begins others.

    Back-pressure: with `window` calls of `add` or `extend` unacknowledged, the next one waits.

    Args:
        transport: Finds the shards.
        clients: The shards.
        template: A buffer declared as the shards' are, but of this writer's environments alone: what it is given is
            checked by it.
        envs: The numbers of its environments.
        window: Calls that may be unacknowledged.
        run: See `Routes`.
        pool: Who starts a shard in place of a lost one, if that is in this process.
        check_going: Raises `StorageError` once the replay is closed; None: that is not known in this process.
    """

    def __init__(
        self,
        transport: Transport,
        clients: Sequence[ShardClient],
        template: ReplayBuffer,
        envs: Ids,
        window: int,
        run: int,
        pool: ShardPool | None = None,
        check_going: Callable[[], None] | None = None,
    ) -> None:
        self._transport, self._template, self._envs, self._window = transport, template, envs, window
        self._pool, self._check_going = pool, check_going
        name = uuid4().hex
        self._outboxes = [Outbox(name, client, max(1, window // 2)) for client in clients]
        self._reminder: Reminder | None = None
        self._refused: list[Exception] = []  # what shards raised, and nobody was notified of yet
        self._run, self._fields = run, template.given_fields
        follows = template.given_fields != template.fields  # stacks are checked by the steps before them
        self._check = template.extend if follows else template._check_steps
        self._routes = Routes(template, envs, len(clients), run)

    def __reduce__(self) -> Any:
        if self.unacknowledged:
            raise ConfigError("a writer with unacknowledged steps cannot be sent elsewhere; call its flush() before")
        clients = [outbox.client for outbox in self._outboxes]
        arguments = (self._transport, clients, self._template, self._envs, self._window, self._run)
        return RemoteWriter, arguments, {"_routes": self._routes}  # under a new name, continuing its episodes

    @property
    def unacknowledged(self) -> int:
        """The number of calls that are not acknowledged yet."""
        return sum(map(len, self._outboxes))

    def add(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> None:
        """Store one time step of every environment of this writer; see `ReplayBuffer.add`.

        Raises:
            FieldError, ShapeError, DtypeError: A value does not fit; nothing is stored.
            StorageError: A shard was lost, and none has come in its place.
        """
        self.put(steps, where, final_obs, many=False)

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> None:
        """Store T time steps at once, as T calls of `add` would; see `ReplayBuffer.extend`."""
        self.put(steps, where, final_obs, many=True)

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately: their next step does not follow a stored step.

        Args:
            where: bool ``[E]``; None: all environments of this writer.
        """
        self._template.end_episode(where)  # checks `where`
        mask = np.ones(len(self._envs), np.bool_) if where is None else np.asarray(where, np.bool_).reshape(-1)
        for shard, columns in self._routes.end_episode(mask):
            self._send(shard, "end_episode", (self._envs[columns],), lambda _: None)
        self._tell()

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            StorageError: A shard was lost, and none has come in its place.
        """
        for shard, outbox in enumerate(self._outboxes):
            while len(outbox):
                self._await(shard)
        self._tell()

    def put(self, steps: dict[str, Any], where: Any, final_obs: Any, many: bool) -> Ids:
        """Send steps, and return an array (T, e) of their global ids, which are filled in as they are acknowledged."""
        template = self._template
        check = self._check if many else template.add
        check(where=where, final_obs=final_obs, **steps)
        alone = template.num_envs is None

        def with_axes(leaf: Any) -> npt.NDArray[Any]:
            array = np.asarray(leaf)
            array = array if many else array[None]
            return array[:, None] if alone else array

        columns = map_leaves(lambda _, leaf: with_axes(leaf), self._fields, steps)
        final_obs = map_leaves(with_axes, final_obs)
        shape = (len(next(leaves(columns))), len(self._envs))
        taken = np.ones(shape, np.bool_) if where is None else np.asarray(where, np.bool_).reshape(shape)
        ids = np.full(shape, -1)
        for shard, at, envs, mask, *episodes in self._routes.route(columns, taken):
            part, last = (take(tree, at) for tree in (columns, final_obs))
            self._send(shard, "add", (self._envs[envs], part, mask, last, *episodes), partial(_fill, ids, at, mask))
        self._tell()
        return ids

    def _send(self, shard: int, method: str, arguments: tuple[Any, ...], acknowledge: Callable[[Ids], None]) -> None:
        if self._check_going is not None:
            self._check_going()
        while self.unacknowledged >= self._window:
            self._await(max(range(len(self._outboxes)), key=lambda s: len(self._outboxes[s])))
        outbox = self._outboxes[shard]
        outbox.put(method, self._transport.parcel(arguments), acknowledge)
        if outbox.held:
            if self._reminder is None or not self._reminder.is_alive():  # a forked process has none
                reminder = Reminder(self._outboxes)
                reminder.start()
                weakref.finalize(self, reminder.end)
                self._reminder = reminder
            self._reminder.held.set()

    def _await(self, shard: int) -> None:
        """Wait until a slot's oldest message is acknowledged, sending it again as long as it is not."""
        outbox = self._outboxes[shard]
        message = outbox.oldest()
        try:
            if message.call is None:
                raise ShardLost("it was lost before the call")
            ids, tally = message.call.answer(message.at)
        except ShardLost as error:
            outbox.resend(self._successor(shard, outbox.client, error))
            return
        except OutOfOrder:
            sleep(POLL)  # it has not begun yet
            outbox.resend(outbox.client)
            return
        except Exception as error:  # the shard will not take it, nor come to what follows it before it is reported
            outbox.acknowledged()
            self._refused.append(error)
            return
        outbox.acknowledged()
        message.acknowledge(global_ids(outbox.client.epoch, shard, ids))
        if self._pool:
            self._pool.heard(self._pool.slots[shard], tally)

    def _tell(self) -> None:
        """Raise what shards have refused, once everything else was done."""
        if self._refused:
            (first, *more), self._refused = self._refused, []
            if more:
                first.add_note(f"and {len(more)} more calls were refused")
            raise first

    def _successor(self, shard: int, lost: ShardClient, error: ShardLost) -> ShardClient:
        begun = monotonic()
        while monotonic() - begun < PATIENCE:
            if self._check_going is not None:
                self._check_going()
            if self._pool:
                if self._pool.slots[shard].client is lost:
                    self._pool.lose(self._pool.slots[shard], lost, error)
                else:
                    self._pool.refresh()  # the next one may be lost, too, and nobody else may ask it
                self._pool.tend()
            client = self._transport.newest(shard, lost.epoch)
            if client is not None:
                return client
            sleep(POLL)
        raise StorageError(
            f"shard {shard} was lost, and in {PATIENCE:.0f} s none has come in its place; is the process that made the "
            "RemoteReplay still there?"
        )


class Reminder(Thread):
    """Sends what is held and nothing else sends: the writer may have nothing more to say, and wait for the learner.

    Args:
        outboxes: A writer's.
    """

    def __init__(self, outboxes: Sequence[Outbox]) -> None:
        super().__init__(name="replaylab-writer", daemon=True)
        self.held = Event()
        self._outboxes, self._over = outboxes, False

    def run(self) -> None:
        """Wait for something that is held, and send it if it still is; at the end, send all."""
        pause = LINGER
        while not self._over:
            self.held.wait()
            if not self._over:
                sleep(pause)
                self.held.clear()
                pause = LINGER if self._transmit(LINGER) else min(2 * pause, LONGEST_PAUSE)
        self._transmit()

    def _transmit(self, older: float = 0.0) -> bool:
        """Send what is held for so many seconds, and return whether that could be sent."""
        sent = True
        for outbox in self._outboxes:
            try:
                outbox.transmit(older)
            except Exception:  # it is still held: the writer, when it sends, meets the same
                sent = False
            if outbox.held:
                self.held.set()
        return sent

    def end(self) -> None:
        """End the thread after its writer; wait a moment for the held messages, for example when the program ends."""
        self._over = True
        self.held.set()
        if current_thread() is not self:
            self.join(LONGEST_PAUSE)


def _fill(ids: Ids, at: Any, mask: Flags, new_ids: Ids) -> None:
    """Fill in the ids of acknowledged steps."""
    ids[at] = np.where(mask, new_ids, ids[at])
