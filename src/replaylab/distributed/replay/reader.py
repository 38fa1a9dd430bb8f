"""A reader: draws batches from all shards by one exact distribution, and sends the learner's feedback."""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, pairwise
from os import W_OK, access
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab._core import concatenate
from replaylab.arguments import FRACTION, LARGEST_AXIS, checked, optional, whole
from replaylab.distributed.replay.blocks import FOLDER, Blocks, Placed
from replaylab.distributed.replay.distribution import least_scaled, split, staleness
from replaylab.distributed.replay.ids import Ids, global_ids, shard_of
from replaylab.distributed.replay.options import RemoteConfig
from replaylab.distributed.replay.shard import ActorLost, Tally
from replaylab.distributed.replay.writer import CLOSED, PATIENCE
from replaylab.errors import EmptyBufferError, StorageError
from replaylab.replay import Batch, Fifo, Schedules
from replaylab.trees import flatten, take, unflatten

if TYPE_CHECKING:
    from replaylab.distributed.replay.calls import RayClient, RayPending

Floats = npt.NDArray[np.float64]
Feedback = list[tuple[Ids, Floats, bool]]

ROWS = whole(most=LARGEST_AXIS)

POLL = 0.002
"""Seconds between two questions to shards that have reported nothing new."""

MOST_BATCHES = 16
"""Batches of one call, at most."""

CALL_BYTES = 2**21
"""Bytes of the rows of one call, at most, if it has more than one batch."""

CALL_PERIOD = 0.01
"""Seconds of updates for which a call draws batches, at least; more if the learner waits for calls."""

MOST_WAIT = 0.1
"""Share of a call's time for which the learner may wait."""


@dataclass
class Slot:
    """A shard as a reader knows it."""

    client: "RayClient"
    number: int
    tally: Tally | None = None  # what it reported last
    lost: bool = False
    for_good: bool = False  # whether it will not be restarted
    probe: "RayPending | None" = None  # the answer that will show that a lost shard is there again
    first_id: int = 0  # `Tally.first_id` of the first epoch that it reported
    blocks: Blocks | None = None  # for large rows, unless the shard is known to be on another node
    blocks_for: tuple[int, int] | None = None  # epoch, and rows of a batch
    lost_steps: int = 0  # with earlier epochs, as far as they had been reported

    @property
    def live(self) -> Tally | None:
        """The newest tally, None if the shard is lost."""
        return None if self.lost else self.tally

    def hear(self, tally: Tally) -> bool:
        """Note a tally; return False if it is of a shard that was replaced, as after a node was cut off."""
        before = self.tally
        if before is None:
            self.first_id = tally.first_id
        elif (tally.epoch, tally.serial) < (before.epoch, before.serial):
            return tally.epoch == before.epoch
        elif tally.epoch > before.epoch:
            self.lost, self.lost_steps = False, self.lost_steps + max(before.next_id - tally.first_id, 0)
        self.tally = tally
        return True

    def lose(self, reason: ActorLost) -> None:
        """Note that the shard is lost."""
        self.lost, self.for_good, self.probe = True, reason.for_good, None

    def blocks_of(self, rows: int) -> Blocks | None:
        """Return blocks for batches of so many rows, if there are any."""
        key = (self.tally.epoch if self.tally else -1), rows
        if self.blocks_for != key and access(FOLDER, W_OK):
            self.blocks_for, self.blocks = key, Blocks()
        return self.blocks

    def call(self, method: str, *arguments: Any, num_fed: int = 0, blocks: Blocks | None = None) -> "Call | None":
        """Call a method; return None if the shard is lost, as long as it is not restarted."""
        try:
            if self.lost and not self.for_good:
                self.probe = self.probe or self.client.call("tally")
                if self.probe.ready():
                    answer, self.probe = self.probe, None
                    self.lost = not self.hear(answer.result())
            return None if self.lost else Call(self, self.client.call(method, *arguments), num_fed, blocks)
        except ActorLost as reason:
            self.lose(reason)
            return None


class Call(NamedTuple):
    """A call to a shard."""

    slot: Slot
    pending: "RayPending"
    num_fed: int  # ids of feedback that it carries
    blocks: Blocks | None  # one of which it may fill

    def answer(self) -> Any:
        """Wait for the answer; return None if the shard was lost or replaced."""
        try:
            answer = self.pending.result()
        except ActorLost as reason:
            self.slot.lose(reason)
            return None
        if not self.slot.hear(answer if isinstance(answer, Tally) else answer[-1]):
            return None
        if self.blocks is not None:
            if isinstance(answer[0], Placed):
                return self.blocks.arrays(answer[0]), answer[1]
            if answer[0]:
                self.slot.blocks = None
        return answer


@dataclass
class Group:
    """K batches of B rows, requested by one call to each shard."""

    rows: int
    counts: npt.NDArray[np.int64]  # rows of each shard for each batch (S, K)
    shares: Floats  # T̂_s/ΣT̂ (S,)
    updates: int  # whose feedback came before
    calls: list[Call]
    requested_at: float
    columns: dict[str, Any] = field(default_factory=dict)  # name → values (K·B, *shape), once they arrived
    scaled: Floats = field(default_factory=lambda: np.zeros(0))  # N·q (K·B,), or P/q for samplers without weights
    least: float = 1.0  # the smallest N·q that could be drawn
    taken: int = 0  # batches handed out


class RemoteReader:
    """Draws batches for one learner; it can be sent to other processes.

    `RemoteReplay.reader` creates it. Every reader draws independently from one distribution over all shards, and the
    feedback of all applies to the same priorities. A call to a shard carries the feedback since the last call and draws
    K batches, while the previous K are used. K ≤ 16 is as many as the learner uses in 10 ms, or in the time of a call
    if that is longer; it is 1 if rows are large. So a batch may be drawn up to 2K updates before it is used
    (`priority_age`).

    Attributes:
        rank: Number of the learner.
        world_size: Number of learners.
    """

    def __init__(
        self, clients: Sequence["RayClient"], config: RemoteConfig, rank: int = 0, world_size: int = 1
    ) -> None:
        self._clients, self._config, self.rank, self.world_size = clients, config, rank, world_size
        self._template, sampler = config.template, config.template.sampler
        self._slots = [Slot(client, number) for number, client in enumerate(clients)]
        root = config.root
        self._random = np.random.default_rng(
            np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, config.shards, rank))
        )
        betas = [sampler.beta] if hasattr(sampler, "beta") else []
        self._schedules = Schedules(type(sampler).__name__, betas) if betas else None
        self._stratified = getattr(sampler, "stratified", True)  # those without the option are
        self._lock = RLock()
        self._stored = np.zeros((len(clients), 2), np.int64)  # first id that each shard stores, and the next one's
        self._group: Group | None = None
        self._ahead: Group | None = None
        self._feedback: Feedback = []
        self._updates = self._batches = self._age = self._stale = 0
        self._row_bytes, self._period = 1, CALL_PERIOD
        self._interval, self._drawn_at = math.inf, -math.inf  # seconds between two draws, without waiting

    def __reduce__(self) -> Any:
        return RemoteReader, (self._clients, self._config, self.rank, self.world_size)

    @property
    def priority_age(self) -> float:
        """Updates between the draw of a batch and its use, on the mean; NaN before the first batch."""
        return self._age / self._batches if self._batches else math.nan

    def sample(self, batch_size: int, *, progress: float | None = None) -> Batch:
        """Draw a batch from all shards.

        Its arrays belong to the caller. Stacks of ``obs`` and ``next_obs`` share the memory of common frames. Rows
        are grouped by shard. If a shard is lost, the batches on their way are drawn again from the others.

        Args:
            batch_size: B ≥ 1.
            progress: Training progress in [0, 1], if β has a schedule. None: its start value, with one warning.

        Raises:
            EmptyBufferError: Too little is stored, or every priority is zero.
            ConfigError: An argument is out of its range.
            StorageError: The replay was closed, or no shard was restarted in time.
        """
        batch_size = checked("batch_size", batch_size, ROWS)
        checked("progress", progress, optional(FRACTION))
        beta = None if self._schedules is None else self._schedules.at(progress)[0]
        with self._lock:
            passed = min(time.perf_counter() - self._drawn_at, 4.0 * self._interval)  # a pause is no update
            self._interval = passed if self._interval == math.inf else 0.95 * self._interval + 0.05 * passed
            group = self._group
            if group is None or group.rows != batch_size or group.taken == group.counts.shape[1]:
                group = self._group = self._next(batch_size)
            self._batches, self._age = self._batches + 1, self._age + self._updates - group.updates
            group.taken += 1
            batch = self._batch(group, group.taken - 1, beta)
            self._drawn_at = time.perf_counter()
            return batch

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Take the learner's feedback for these steps; it is sent with the next call that draws.

        Arguments and errors are those of `ReplayBuffer.update_priorities`.

        Returns:
            How many of the steps are stored, as last reported. Feedback for others changes nothing; `stats` counts it.
        """
        flat = self._flat(ids)
        self._template.update_priorities(np.full(np.shape(ids), -1), td_error, priority=priority)  # checks the values
        values: Any = td_error if priority is None else priority
        values = values.detach().cpu() if hasattr(values, "detach") else values
        copy = np.empty(flat.shape)
        copy[:] = np.asarray(values, np.float64).reshape(-1)
        with self._lock:
            self._check_open()
            self._updates += 1
            if self._template.sampler.wants_feedback:
                self._feedback.append((flat, copy, priority is None))
            return self._num_stored(flat)

    def batches(
        self,
        batch_size: int,
        *,
        prefetch: int = 1,
        total: int | None = None,
        progress: float | Callable[[int], float] | None = None,
        device: Any = None,
    ) -> Generator[Batch, None, None]:
        """Yield batches without end, or `total` of them, on a device of PyTorch.

        Args:
            batch_size: B, as for `sample`.
            prefetch: Batches that are copied to the device in advance.
            total: How many batches to yield; None: no end.
            progress: As for `sample`, or a function of the batch's number that gives it.
            device: A device of PyTorch, such as "cuda:0"; None: NumPy arrays.
        """
        prefetch, waiting = checked("prefetch", prefetch, whole(0, 1_000)), deque[Batch]()
        for number in count() if total is None else range(total):
            batch = self.sample(batch_size, progress=progress(number) if callable(progress) else progress)
            if device is not None:
                batch = (batch.pin_memory() if str(device).startswith("cuda") else batch).torch(device)
            waiting.append(batch)
            if len(waiting) > prefetch:
                yield waiting.popleft()
        yield from waiting

    def refresh(self) -> None:
        """Send pending feedback, and read the figures of all shards.

        Raises:
            StorageError: The replay was closed.
        """
        with self._lock:
            self._answers(self._call([]))

    def _flat(self, ids: npt.ArrayLike) -> Ids:
        """Return a copy of ids, int64 (n,)."""
        steps = np.asarray(ids)
        if steps.size and (steps.dtype.kind not in "iu" or int(steps.max()) > np.iinfo(np.int64).max):
            self._template.probabilities(ids)  # raises
        return steps.reshape(-1).astype(np.int64)

    def _num_stored(self, ids: Ids) -> int:
        """Return how many ids are of steps that are stored, as last reported."""
        if not all(slot.tally for slot in self._slots):
            self.refresh()
        first, end = self._stored[np.minimum(shard_of(ids), len(self._slots) - 1)].T
        return int(np.count_nonzero((ids >= first) & (ids < end)))

    def _tallies(self) -> list[Tally]:
        """Return the newest tallies of the shards that live."""
        return [tally for slot in self._slots if (tally := slot.live) is not None]

    def _ask(self, method: str, *arguments: Any) -> dict[int, Any]:
        """Call a method of all shards, and return the answers by shard."""
        with self._lock:
            calls = [slot.call(method, *arguments) for slot in self._slots]
            return self._answers([call for call in calls if call is not None])

    def _check_open(self) -> None:
        if all(slot.for_good for slot in self._slots):
            raise StorageError(CLOSED)

    def _num_batches(self, rows: int) -> int:
        """Return K."""
        wanted = math.ceil(self._period / self._interval)
        return max(1, min(wanted, MOST_BATCHES, CALL_BYTES // (rows * self._row_bytes)))

    def _next(self, rows: int) -> Group:
        """Return the next batches, and request those after them."""
        while True:
            group, self._ahead = self._ahead, None
            if group is None or group.rows != rows:
                self._await_steps()
                group = self._request(rows)
            self._ahead = self._request(rows) if self._may_draw() else None
            if self._collect(group):
                return group

    def _may_draw(self) -> bool:
        """Whether a batch can be drawn now, as far as is known."""
        tallies = self._tallies()
        return any(tally.total for tally in tallies) and sum(t.size for t in tallies) >= self._config.min_size

    def _await_steps(self) -> None:
        """Wait while shards restart, until a batch can be drawn."""
        begun = time.monotonic()
        if not self._may_draw():
            self.refresh()
        while not self._may_draw():
            if not any(slot.lost and not slot.for_good for slot in self._slots):
                size, least = sum(tally.size for tally in self._tallies()), self._config.min_size
                raise EmptyBufferError(
                    f"{size:,} steps are stored in all shards, but a batch needs {least:,}; add more"
                    if size < least
                    else f"every one of the {size:,} stored steps has priority 0, so none can be drawn; give at least "
                    "one a positive priority with update_priorities"
                )
            if time.monotonic() - begun > PATIENCE:
                raise StorageError(f"no shard was restarted within {PATIENCE:.0f} s after it was lost")
            time.sleep(POLL)
            self.refresh()

    def _request(self, rows: int) -> Group:
        """Request K batches of all shards at once, with the feedback since the last call."""
        totals = [slot.live.total if slot.live else 0.0 for slot in self._slots]
        counts = split(totals, rows, self._num_batches(rows), self._random, self._stratified)
        shares, updates = np.array(totals) / sum(totals), self._updates
        return Group(rows, counts, shares, updates, self._call(counts.tolist(), rows), time.perf_counter())

    def _answers(self, calls: list[Call]) -> dict[int, Any]:
        """Wait for the answers of the shards that are not lost."""
        answers = {}
        for call in calls:
            answer = call.answer()
            if answer is None:
                self._stale += call.num_fed
            else:
                answers[call.slot.number] = answer
        self._check_open()
        self._stored[:] = 0
        for slot in self._slots:
            if (tally := slot.live) is not None:
                oldest = tally.next_id - tally.size if isinstance(self._template.retention, Fifo) else 0
                self._stored[slot.number] = global_ids(tally.epoch, slot.number, np.array([oldest, tally.next_id]))
        return answers

    def _call(self, counts: list[list[int]], rows: int = 0) -> list[Call]:
        """Let all live shards take feedback and draw."""
        calls, is_large = list[Call](), rows * self._row_bytes > CALL_BYTES
        for slot, mine in zip(self._slots, self._feedback_by_shard(), strict=True):
            num_fed = sum(len(ids) for ids, _, _ in mine)
            blocks, numbers = slot.blocks_of(rows) if is_large else None, counts[slot.number] if counts else []
            block = blocks and blocks.next()
            call = slot.call("draw", numbers, mine, block, num_fed=num_fed, blocks=blocks)
            if call is None:
                self._stale += num_fed
            else:
                calls.append(call)
        self._check_open()
        return calls

    def _feedback_by_shard(self) -> list[Feedback]:
        """Return the pending feedback of each shard, and forget it."""
        pending, self._feedback = self._feedback, []
        by_shard: list[Feedback] = [[] for _ in self._slots]
        for td_errors, items in groupby(pending, key=lambda item: item[2]):
            all_ids, all_values, _ = zip(*items, strict=True)
            ids, values = np.concatenate(all_ids), np.concatenate(all_values)
            shards = shard_of(ids).astype(np.uint16)
            order = np.argsort(shards, kind="stable")
            ids, values = ids[order], values[order]
            borders = np.searchsorted(shards[order], np.arange(len(by_shard) + 1)).tolist()
            for number, (start, end) in enumerate(pairwise(borders)):
                if end > start:
                    by_shard[number].append((ids[start:end], values[start:end], td_errors))
        return by_shard

    def _collect(self, group: Group) -> bool:
        """Wait for the rows of a group and put its batches together; False if a shard has not given its rows."""
        begun = time.perf_counter()
        answers = self._answers(group.calls)
        passed, waited = time.perf_counter() - group.requested_at, time.perf_counter() - begun
        self._period = max(CALL_PERIOD, passed if waited > MOST_WAIT * passed else 0.97 * self._period)
        group.calls.clear()  # they hold memory of Ray's object store
        tallies = [answer[1] if (answer := answers.get(slot.number)) else None for slot in self._slots]
        chosen, parts = np.flatnonzero(group.counts.any(axis=1)).tolist(), []
        if any(shard not in answers or answers[shard][0] is None for shard in chosen):
            return False
        for shard in chosen:
            part = answers[shard][0]
            part["probability"] = part["probability"] * group.shares[shard]
            part["id"] = global_ids(answers[shard][1].epoch, shard, part["id"])
            parts.append(part)
        columns = _joined(group.counts[chosen], parts)
        self._row_bytes = max(1, sum(column.nbytes for column in columns.values()) // len(columns["id"]))
        if self._schedules is None:
            group.scaled = staleness(group.shares, tallies)[shard_of(columns["id"])]
        else:
            group.scaled = columns["probability"] * sum(tally.rows for tally in tallies if tally)
            group.least = least_scaled(group.shares, tallies)
        for path, length in self._config.frames.items():
            frames = columns[f"next_{path}"]
            columns[path], columns[f"next_{path}"] = frames[:, :length], frames[:, 1:]
        fields = self._template.fields
        nested = unflatten(fields, (columns.pop(path) for path, _ in flatten(fields)))
        group.columns = nested | columns
        return True

    def _batch(self, group: Group, number: int, beta: float | None) -> Batch:
        """Return a batch of a group, with its weights."""
        rows = slice(number * group.rows, (number + 1) * group.rows)
        scaled = weight = group.scaled[rows]
        if beta is not None:
            normalize = getattr(self._template.sampler, "normalize", "none")
            reference = {"batch": float(scaled.min()), "buffer": group.least}.get(normalize, 1.0)
            weight = (reference / scaled) ** beta
        columns = {
            name: column[rows] if isinstance(column, np.ndarray) else take(column, rows)  # most are arrays
            for name, column in group.columns.items()
        }
        last = {name: columns.pop(name) for name in ("probability", "id")}
        return Batch(columns | {"weight": weight.astype(np.float32)} | last)


def _joined(counts: npt.NDArray[np.int64], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of shards, batch after batch, in private memory; counts (S, K) are the rows of each."""
    if counts.shape[1] == 1:  # in memory that former batches have returned, since fresh pages cost several copies
        return {path: concatenate([part[path] for part in parts]) for path in parts[0]}
    batch_of = np.concatenate([np.repeat(np.arange(counts.shape[1], dtype=np.uint8), row) for row in counts])
    order = np.argsort(batch_of, kind="stable")
    return {path: np.concatenate([part[path] for part in parts])[order] for path in parts[0]}
