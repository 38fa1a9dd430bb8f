"""How steps come into the shards: numbered, acknowledged, sent again where a shard is lost, applied once."""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from threading import Event, Thread, current_thread
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.routes import Routes
from replaylab.distributed.replay.shards.fleet import Fleet
from replaylab.distributed.replay.shards.ids import global_ids
from replaylab.distributed.replay.shards.lines import Line
from replaylab.distributed.replay.shards.shard import OutOfOrder
from replaylab.distributed.replay.shards.transport import ShardClient, ShardLost, Transport
from replaylab.distributed.replay.shards.trees import as_arrays, leaves, map_tree
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import ReplayBuffer

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
    writer goes on with its episodes; a new one for the same environments begins others.

    Back-pressure: with `window` calls of `add` or `extend` unacknowledged, the next one waits.

    Args:
        transport: Finds the shards.
        clients: The shards.
        template: A buffer declared as the shards' are, but of this writer's environments alone: what it is given is
            checked by it.
        envs: The numbers of its environments.
        window: Calls that may be unacknowledged.
        run: See `Routes`.
        fleet: Who starts a shard in place of a lost one, if that is in this process.
    """

    def __init__(
        self,
        transport: Transport,
        clients: Sequence[ShardClient],
        template: ReplayBuffer,
        envs: Ids,
        window: int,
        run: int,
        fleet: Fleet | None = None,
    ) -> None:
        self._transport, self._template, self._envs, self._window = transport, template, envs, window
        self._fleet = fleet
        name = uuid4().hex
        self._lines = [Line(name, client, max(1, window // 2)) for client in clients]
        self._reminder: Reminder | None = None
        self._refused: list[Exception] = []  # what shards raised, and nobody was told of yet
        self._run, self._fields = run, template.given_fields
        follows = template.given_fields != template.fields  # stacks are checked by the steps before them
        self._check = template.extend if follows else template.check_steps
        self._routes = Routes(template, envs, len(clients), run)

    def __reduce__(self) -> Any:
        if self.unacknowledged:
            raise ConfigError("a writer with unacknowledged steps cannot be sent elsewhere; call its flush() before")
        clients = [line.client for line in self._lines]
        given = (self._transport, clients, self._template, self._envs, self._window, self._run)
        return RemoteWriter, given, {"_routes": self._routes}  # under a name of its own, in the midst of its episodes

    @property
    def unacknowledged(self) -> int:
        """Calls that are on their way."""
        return sum(map(len, self._lines))

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
        """Say that environments were reset separately: their next step does not follow a stored step.

        Args:
            where: bool ``[E]``; None: all of this writer's.
        """
        self._template.end_episode(where)  # which checks it
        asked = np.ones(len(self._envs), np.bool_) if where is None else np.asarray(where, np.bool_).reshape(-1)
        for shard, columns in self._routes.end_episode(asked):
            self._send(shard, "end_episode", (self._envs[columns],), lambda _: None)
        self._tell()

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        Raises:
            StorageError: A shard was lost, and none has come in its place.
        """
        for shard, line in enumerate(self._lines):
            while len(line):
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

        columns = as_arrays(self._fields, steps, with_axes)
        final_obs = map_tree(with_axes, final_obs)
        shape = (len(next(leaves(columns))), len(self._envs))
        given = np.ones(shape, np.bool_) if where is None else np.asarray(where, np.bool_).reshape(shape)
        ids = np.full(shape, -1)
        for shard, at, envs, mask, *episodes in self._routes.route(columns, given):
            part, last = (map_tree(itemgetter(at), one) for one in (columns, final_obs))
            self._send(shard, "add", (self._envs[envs], part, mask, last, *episodes), partial(_fill, ids, at, mask))
        self._tell()
        return ids

    def _send(self, shard: int, method: str, arguments: tuple[Any, ...], acknowledge: Callable[[Ids], None]) -> None:
        if self._fleet is not None:
            self._fleet.check_going()
        while self.unacknowledged >= self._window:
            self._await(max(range(len(self._lines)), key=lambda s: len(self._lines[s])))
        line = self._lines[shard]
        line.put(method, self._transport.parcel(arguments), acknowledge)
        if line.held:
            if self._reminder is None or not self._reminder.is_alive():  # a forked process has none
                reminder = Reminder(self._lines)
                reminder.start()
                weakref.finalize(self, reminder.end)
                self._reminder = reminder
            self._reminder.held.set()

    def _await(self, shard: int) -> None:
        """Wait until a place's oldest message is acknowledged, sending it again as long as it is not."""
        line = self._lines[shard]
        message = line.oldest()
        try:
            if message.call is None:
                raise ShardLost("it was lost before the call")
            ids, tally = message.call.answer(message.at)
        except ShardLost as error:
            line.resend(self._successor(shard, line.client, error))
            return
        except OutOfOrder:
            sleep(POLL)  # it has not begun yet
            line.resend(line.client)
            return
        except Exception as error:  # the shard will not take it, nor come to what follows it before it is told
            line.acknowledged()
            self._refused.append(error)
            return
        line.acknowledged()
        message.acknowledge(global_ids(line.client.epoch, shard, ids))
        if self._fleet:
            self._fleet.heard(self._fleet.places[shard], tally)

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
            if self._fleet:
                if self._fleet.places[shard].client is lost:
                    self._fleet.lose(self._fleet.places[shard], lost, error)
                else:
                    self._fleet.refresh()  # the next one may be lost, too, and nobody else may ask it
                self._fleet.tend()
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
        lines: A writer's.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(name="replaylab-writer", daemon=True)
        self.held = Event()
        self._lines, self._over = lines, False

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
        for line in self._lines:
            try:
                line.transmit(older)
            except Exception:  # it is still held: the writer, when it sends, meets the same
                sent = False
            if line.held:
                self.held.set()
        return sent

    def end(self) -> None:
        """Let the thread end: the writer is gone, perhaps with the program, which waits a moment for what is held."""
        self._over = True
        self.held.set()
        if current_thread() is not self:
            self.join(LONGEST_PAUSE)


def _fill(ids: Ids, at: Any, mask: Flags, found: Ids) -> None:
    """Fill in ids that came back."""
    ids[at] = np.where(mask, found, ids[at])
