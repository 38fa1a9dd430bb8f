"""A writer: collects the steps of an environment worker, and sends them to its shards in unrolls."""

import random
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, shown, wholes
from replaylab.distributed.replay.ids import Ids, global_ids
from replaylab.distributed.replay.options import RemoteConfig
from replaylab.distributed.replay.shard import ActorLost, Unroll
from replaylab.errors import ConfigError, StorageError
from replaylab.replay import Field, FrameStack, ReplayBuffer
from replaylab.trees import flatten, map_leaves

if TYPE_CHECKING:
    from replaylab.distributed.replay.calls import RayClient, RayPending

LINGER = 0.005
"""Seconds that steps wait for others while more are added."""

UNROLL_BYTES = 2**21
"""Bytes of an unroll, at most, if it has more than one time step."""

PATIENCE = 120.0
"""Seconds to wait for a lost shard to be restarted."""

POLL = 0.005
"""Seconds between two questions to a shard that was lost."""

CLOSED = "the shards of this replay have ended; create it again, or load a snapshot"


class Sent(NamedTuple):
    """An unroll that is not acknowledged: its shard, its answer, and where the ids of its steps go."""

    shard: int
    pending: "RayPending"
    ids: Ids
    where: npt.NDArray[np.bool_]


class RemoteWriter:
    """Stores the steps of one environment worker in the shards of a `RemoteReplay`; it can be sent to other processes.

    `RemoteReplay.writer` creates it. `add` collects steps and sends them once there are `unroll` time steps, or after
    5 ms, with the call that comes then; call `flush` before you wait for anything else. A call waits only while
    `window` unrolls are unacknowledged, or a lost shard restarts.

    Steps are stored at most once: those that a shard had not acknowledged when it died are counted in `lost_steps`,
    and the next ones begin new episodes. A copy in another process begins new episodes, too.

    Attributes:
        stored: Steps stored so far, as acknowledged.
        lost_steps: Steps lost so far with a shard, before they were stored.
    """

    def __init__(
        self, clients: Sequence["RayClient"], config: RemoteConfig, envs: Ids, window: int, unroll: int
    ) -> None:
        self._arguments = (clients, config, envs, window, unroll)
        self._clients, self._config, self._envs, self._window = clients, config, envs, window
        fields = map_leaves(lambda field: Field(field.shape, field.dtype), config.declared["fields"])
        nbytes = len(envs) * sum(field.nbytes for _, field in flatten(fields))
        most = UNROLL_BYTES // nbytes
        if not config.keeps_episodes:  # so that all shards get about as many
            most = min(most, config.capacity // (8 * config.shards * len(envs)))
        self._unroll = max(1, min(unroll, most))
        self._stage = ReplayBuffer(  # checks steps and leaves out resets; ids say which steps are stored
            2 * self._unroll * len(envs),
            fields,
            num_envs=None if config.declared["num_envs"] is None else len(envs),
            transforms=[p for p in config.template.transforms if isinstance(p, FrameStack) and p.stacked_input],
            autoreset=config.declared["autoreset"],
            episodes=config.declared["episodes"],
        )
        self._lanes = self._lanes_of(envs)
        self._turn = int(envs[0])
        self._name, self._numbers = random.SystemRandom().getrandbits(62), [0] * len(self._lanes)
        self._begins = np.zeros(len(envs), np.bool_)
        self._ids, self._since = list[Any](), 0.0
        self._sent = deque[Sent]()
        self.stored = self.lost_steps = 0

    def __reduce__(self) -> Any:
        if self.unacknowledged:
            raise ConfigError("a writer with unacknowledged steps cannot be sent elsewhere; call its flush() before")
        return RemoteWriter, self._arguments

    @property
    def unacknowledged(self) -> int:
        """Unrolls that are not acknowledged, including the one that is being collected."""
        return len(self._sent) + bool(self._ids)

    def add(self, /, *, where: Any = None, final_obs: Any = None, **steps: Any) -> None:
        """Store one time step of every environment of this writer; see `ReplayBuffer.add`.

        Raises:
            FieldError, ShapeError, DtypeError: A value does not fit; nothing is stored.
            StorageError: The replay was closed, or a lost shard was not restarted in time.
        """
        self.collect(where=where, final_obs=final_obs, **steps)
        if len(self._ids) >= self._unroll or time.monotonic() - self._since > LINGER:
            self.send()

    def extend(
        self, /, *, where: Any = None, final_obs: Any = None, td_error: npt.ArrayLike | None = None, **steps: Any
    ) -> list[Ids]:
        """Store T time steps at once and send them; see `ReplayBuffer.extend`.

        Args:
            where: bool ``T [E]``: the steps that are stored; None: all.
            final_obs: As for `ReplayBuffer.extend`.
            td_error: Initial TD errors of the steps, ``T [E]``, as actors of Ape-X compute them. None: new steps get
                the largest priority of their shard.
            **steps: Every field, ``T [E] *shape``.

        Returns:
            Arrays (t, E), together of length T, which hold the ids after `flush`; −1 where nothing was stored.

        Raises:
            PriorityError: A TD error is NaN or infinite.
            FieldError, ShapeError, DtypeError, StorageError: As for `add`.
        """
        self.send()
        arrays = [leaf for _, leaf in flatten((steps, final_obs, where)) if leaf is not None]
        if steps.keys() != self._stage.fields.keys() or not all(map(np.ndim, arrays)):
            self._stage.extend(where=where, final_obs=final_obs, **steps)  # raises
        length, ids, errors = len(arrays[0]), list[Ids](), None
        if td_error is not None:
            errors = np.asarray(td_error, np.float64)
            shape = (length,) if self._stage.num_envs is None else (length, len(self._envs))
            self._config.template.update_priorities(np.full(shape, -1), errors)  # checks them
            errors = errors.reshape(length, -1)
        for start in range(0, max(length, 1), self._unroll):
            rows = slice(start, start + self._unroll)
            part, last = map_leaves(lambda leaf, rows=rows: np.asarray(leaf)[rows], (steps, final_obs))
            mask = None if where is None else np.asarray(where)[rows]
            self._ids = list(self._stage.extend(where=mask, final_obs=last, **part))
            ids.append(self.send(None if errors is None else errors[rows]))
        return ids

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately: their next step does not follow a stored step.

        Args:
            where: bool ``[E]``; None: all environments of this writer.
        """
        self._stage.end_episode(where)
        self.send()
        self._begins |= True if where is None else np.asarray(where, np.bool_)

    def flush(self) -> None:
        """Send what is collected, and wait until everything is acknowledged and stored.

        Raises:
            StorageError: As for `add`.
        """
        self.send()
        while self._sent:
            self._await_oldest()

    def collect(self, **steps: Any) -> None:
        """Collect one time step; arguments and errors of `add`."""
        self._ids.append(self._stage.add(**steps))
        if len(self._ids) == 1:
            self._since = time.monotonic()

    def _lanes_of(self, envs: Ids) -> list[tuple[int | None, slice]]:
        """Return shards and the columns of their environments, where these are neighbors; None: any shard, in turn."""
        if not self._config.keeps_episodes:
            return [(None, slice(0, len(envs)))]
        shards = [self._config.shard_of_env(int(env)) for env in envs]
        starts = [k for k in range(len(envs)) if not k or envs[k] != envs[k - 1] + 1 or shards[k] != shards[k - 1]]
        return [(shards[a], slice(a, b)) for a, b in zip(starts, [*starts[1:], len(envs)], strict=True)]

    def send(self, errors: npt.NDArray[np.float64] | None = None) -> Ids:
        """Send what is collected, and return an array (T, e) that holds the global ids after `flush`."""
        ids = np.array(self._ids, np.int64).reshape(-1, len(self._envs))
        out, self._ids = np.full(ids.shape, -1), []
        for k, (home, lane) in enumerate(self._lanes):
            where = ids[:, lane] >= 0
            if not where.any():
                continue
            shard = self._turn % len(self._clients) if home is None else home
            self._turn, self._numbers[k] = self._turn + 1, self._numbers[k] + 1
            unroll = Unroll(
                writer=self._name,
                number=self._numbers[k],
                first_env=0 if home is None else int(self._envs[lane.start]) - self._config.first_env(home),
                where=where,
                begins=self._begins[lane].copy(),
                columns=dict(flatten(self._stage.get(ids[:, lane][where]))),
                td_error=None if errors is None else errors[:, lane][where],
            )
            self._begins[lane] &= ~where.any(axis=0)
            while len(self._sent) >= self._window:
                self._await_oldest()
            try:
                self._sent.append(Sent(shard, self._clients[shard].call("add", unroll), out[:, lane], where))
            except ActorLost as reason:
                self._lose(shard, int(where.sum()), reason)
        return out

    def _await_oldest(self) -> None:
        shard, pending, out, where = self._sent.popleft()
        try:
            ids, tally = pending.result()
        except ActorLost as reason:
            self._lose(shard, int(where.sum()), reason)
            return
        self.stored += int(where.sum())
        out[where] = global_ids(tally.epoch, shard, ids)

    def _lose(self, shard: int, steps: int, reason: ActorLost) -> None:
        """Count lost steps, and wait until the shard is restarted."""
        self.lost_steps += steps
        begun = time.monotonic()
        while True:
            if reason.for_good:
                raise StorageError(CLOSED) from reason
            if time.monotonic() - begun > PATIENCE:
                raise StorageError(f"shard {shard} was lost and not restarted within {PATIENCE:.0f} s: {reason}")
            try:
                self._clients[shard].call("tally").result()
                return
            except ActorLost as error:
                reason = error
            time.sleep(POLL)


def checked_envs(envs: Any, count: int) -> Ids:
    """Return the numbers of a writer's environments out of `count`; None: all.

    Raises:
        ConfigError: They are not different numbers from 0 to count − 1.
    """
    picked = np.arange(count) if envs is None else checked("envs", envs, wholes("e"))
    sound = picked.ndim == 1 and 0 < len(picked) == len(set(picked.tolist()))
    if not sound or ((picked < 0) | (picked >= count)).any():
        raise ConfigError(f"`envs` must be different numbers from 0 to {count - 1}, but got {shown(envs)}")
    return picked
