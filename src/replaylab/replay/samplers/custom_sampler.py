"""Samplers written in Python: their view of a buffer, their base classes, and their engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import ArrayOf, check, function, returned
from replaylab.errors import ConfigError, EmptyBufferError, SnapshotError
from replaylab.replay.data.arrays import ids_array, values_array
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.engine import Bools, DrawEngine, Layout, RecordingEngine
from replaylab.replay.samplers.sampler import Sampler

Ids = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


RECORD_NBYTES = 5 * 8
"""Bytes recorded about each step."""

REMOVED = -1
"""Number of the episode of a removed step."""


class Record:
    """The data behind a `View`, by slot, for one replica."""

    def __init__(self, capacity: int, num_envs: int) -> None:
        self.ids = np.full(capacity, -1, np.int64)
        self.episodes, self.steps, self.counts = (np.zeros(capacity, np.int64) for _ in range(3))
        self.feedback = np.full(capacity, np.nan)
        self._episode = np.arange(num_envs)  # of each environment, now
        self._step = np.zeros(num_envs, np.int64)
        self._episodes = np.array(num_envs)

    def slots(self) -> Ids:
        """Return the slots of the stored steps, oldest first."""
        slots = self._slots_in_use()
        return np.asarray(slots[self.episodes[slots] != REMOVED], np.int64)

    def _slots_in_use(self) -> Ids:
        begun, capacity = int(self.ids.max()) + 1, len(self.ids)  # id i is in slot i mod capacity
        if self.ids[-1] < 0:  # not full since it was created or cleared; both start at slot 0
            return np.arange(begun % capacity)
        return np.concatenate([np.arange(begun % capacity, capacity), np.arange(begun % capacity)])

    def stored(self, ids: Ids, ended: npt.NDArray[np.bool_]) -> None:
        """Record steps (T, E) with these ids (−1: not stored); `ended` marks the last step of an episode."""
        for row, last in zip(ids, ended, strict=True):
            envs = np.flatnonzero(row >= 0)
            slots = row[envs] % len(self.ids)
            self.ids[slots] = row[envs]
            self.episodes[slots], self.steps[slots] = self._episode[envs], self._step[envs]
            self.counts[slots], self.feedback[slots] = 0, np.nan
            self._step[envs] += 1
            self.end_episode(last & (row >= 0))

    def clear(self) -> None:
        """Record that all steps were dropped."""
        self.ids[:] = -1

    def end_episode(self, where: npt.NDArray[np.bool_]) -> None:
        """Begin a new episode in these environments (E,)."""
        over = np.flatnonzero(where)
        self._step[over] = 0
        self._episode[over] = self._episodes + np.arange(len(over))
        self._episodes += len(over)

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the arrays of another record.

        Raises:
            SnapshotError: The arrays are not those of a record of this size.
        """
        for name, array in arrays.items():
            attribute = getattr(self, name)
            if array.dtype != attribute.dtype or array.shape != attribute.shape:
                raise SnapshotError(f"the snapshot's record `{name}` must be {attribute.dtype}{list(attribute.shape)}")
            setattr(self, name, array)
        capacity, begun = len(self.ids), int(self.ids.max()) + 1
        oldest = int(self.ids[self.ids >= 0].min()) if begun else 0  # not 0 after a `clear`
        stored = np.arange(max(oldest, begun - capacity), begun)
        expected = np.full(capacity, -1)
        expected[stored % capacity] = stored
        if not np.array_equal(self.ids, expected):
            raise SnapshotError("the snapshot's record `ids` does not hold the last ids, each in its slot")

    def find(self, ids: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Return the slots of ids, and which of them still hold their step."""
        slots = ids % len(self.ids)
        return slots, (ids >= 0) & (self.ids[slots] == ids) & (self.episodes[slots] != REMOVED)

    def remove(self, ids: Ids) -> None:
        """Record that the steps of these ids were removed, if they are stored."""
        slots, stored = self.find(ids)
        self.episodes[slots[stored]] = REMOVED


class View:
    """View of one replica for a `CustomSampler`: every array has one entry a stored step, oldest first.

    Attributes:
        ids: int64 (N,).
        ages: int64 (N,); the newest step has age 0.
        episodes: int64 (N,); steps of one environment's episode share a number, which grows.
        steps_in_episode: int64 (N,); 0 for an episode's first step.
        replay_counts: int64 (N,); how often each step was drawn.
        feedback: float64 (N,); the last |TD error| or priority of each step, NaN before the first one.
        priorities: float64 (N,); `feedback`, or before the first one the largest of all steps, 1 without any.
        replica: Number of the replica, from 0.
        blocks: int64 (N,), or None without `Sequence`: steps of the same number are one sequence, which comes whichever
            of them is drawn.
    """

    def __init__(self, record: Record, replica: int = 0, stride: int | None = None) -> None:
        self._slots = record.slots()
        self._record = record
        self._stride = stride
        self.replica = replica
        self.ids: Ids = record.ids[self._slots]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ages(self) -> Ids:
        """Steps stored since each."""
        return np.asarray(self.ids[-1] - self.ids, np.int64)

    @property
    def episodes(self) -> Ids:
        """The number of each step's episode."""
        return self._record.episodes[self._slots]

    @property
    def steps_in_episode(self) -> Ids:
        """The place of each step in its episode."""
        return self._record.steps[self._slots]

    @cached_property
    def blocks(self) -> Ids | None:
        """The number of each step's sequence, if sequences are drawn."""
        if self._stride is None:
            return None
        places = self.steps_in_episode // self._stride
        order = np.lexsort((self.steps_in_episode, self.episodes))
        begins = np.ones(len(order), np.bool_)  # a block ends before a removed step, too
        begins[1:] = (np.diff(self.episodes[order]) != 0) | (np.diff(places[order]) != 0)
        begins[1:] |= np.diff(self.steps_in_episode[order]) != 1
        blocks = np.empty(len(order), np.int64)
        blocks[order] = begins.cumsum() - 1
        return blocks

    @property
    def replay_counts(self) -> Ids:
        """Number of draws of each step."""
        return self._record.counts[self._slots]

    @property
    def feedback(self) -> Floats:
        """The last feedback for each step, NaN for steps without any."""
        return self._record.feedback[self._slots]

    @property
    def priorities(self) -> Floats:
        """The last feedback for each step; the largest one for steps without any."""
        feedback = self.feedback
        values = feedback[~np.isnan(feedback)]
        return np.where(np.isnan(feedback), values.max() if values.size and values.max() > 0 else 1.0, feedback)


SUMS_TO_ONE = 1e-4
"""Largest difference of the sum of probabilities from 1: the rounding error of float32 over millions of steps."""

DRAWN_AS_IT_IS = 1e-12
"""Largest difference of the sum from 1 without normalization."""


class CustomSampler(Sampler):
    """Base of samplers written in Python; derive a frozen dataclass from it.

    All its inputs are in the view. Attributes that change would be shared by all replicas, and missing in snapshots.

    Example:
        Steps that were seldom replayed, more often:

        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from replaylab import Field, ReplayBuffer
        >>> @dataclass(frozen=True)
        ... class Fresh(CustomSampler):
        ...     def distribution(self, view, batch_size):
        ...         wanted = 1.0 / (1.0 + view.replay_counts)
        ...         return wanted / wanted.sum()
        >>> buffer = ReplayBuffer(10, {"x": Field()}, sampler=Fresh(), seed=0)
        >>> ids = buffer.extend(x=np.arange(4.0))
        >>> buffer.sample(3).x.shape
        (3,)
    """

    distribution_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    in_core: ClassVar[bool] = False
    record_nbytes: ClassVar[int] = RECORD_NBYTES

    @property
    def takes_priorities(self) -> bool:
        """Whether ``update_priorities(ids, priority=...)`` is accepted: the view shows the values."""
        return True

    def engine(self, core: _core.Replay, layout: Layout, seed: Seed) -> DrawEngine:
        """Return the engine that draws for a buffer."""
        return CustomEngine(core, layout, seed, self)

    def distribution(self, view: View, batch_size: int) -> Floats:
        """Return each stored step's probability to be a given row of a batch, float64 (N,), summing to 1.

        A sampler without an exact sampling probability states the reason in its class attribute `no_closed_form`, and
        defines `draw` instead; the ``probability`` of its rows is NaN.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `distribution`, or `draw` and the reason in `no_closed_form`"
        )

    def draw(self, view: View, batch_size: int, rng: np.random.Generator) -> Ids:
        """Return the ids of a batch, int64 (B,). By default B independent draws from `distribution`."""
        return rng.choice(view.ids, size=batch_size, p=self.distribution(view, batch_size))

    def weights(self, view: View, probabilities: Floats, progress: float | None) -> Floats:  # noqa: ARG002
        """Return the importance weights of rows drawn with these probabilities (B,), finite and ≥ 0. By default 1.

        With `Sequence` the probabilities are those of the sequences, each the chance of its steps together.
        """
        return np.ones(len(probabilities))


class TopScores(CustomSampler):
    """Base of samplers that draw the B steps of the highest scores; derive from it, and define `scores`.

    Sampling probability: P(i) = 1/B for those B (of equal scores the older step), else 0. A batch needs B ≤ N. With
    `Sequence`: the B sequences that contain the highest scores.
    """

    def scores(self, view: View) -> npt.ArrayLike:
        """Return the score of every stored step, (N,)."""
        raise NotImplementedError(f"{type(self).__name__} must define `scores`")

    def distribution(self, view: View, batch_size: int) -> Floats:
        """Return 1/B for the B highest scores."""
        chances, best = np.zeros(len(view)), self._best(view, batch_size)
        chances[best] = 1.0 / len(best)
        return chances

    def draw(self, view: View, batch_size: int, rng: np.random.Generator) -> Ids:  # noqa: ARG002
        """Return the ids with the highest scores, best first."""
        blocks = view.blocks
        count, units = (len(view), "steps") if blocks is None else (blocks.max(initial=-1) + 1, "sequences")
        if batch_size > count:
            raise EmptyBufferError(
                f"{type(self).__name__} gives `batch_size` different {units}, but batch_size={batch_size} and only "
                f"{count} {units} are stored; ask for fewer, or add more steps first"
            )
        return view.ids[self._best(view, batch_size)]

    def _best(self, view: View, batch_size: int) -> Ids:
        words = f"one number for each of {len(view)} ids, none of them NaN"
        rule = ArrayOf(view.ids.shape, words, holds=lambda array: ~np.isnan(array))
        name = "score" if isinstance(self, Oracle) else "scores"
        scores = returned(f"`{name}` of {type(self).__name__}", self.scores(view), rule).astype(np.float64)
        blocks = view.blocks
        if blocks is not None:  # of each sequence only the step of its highest score
            order = np.argsort(-scores, kind="stable")
            return order[np.sort(np.unique(blocks[order], return_index=True)[1])][:batch_size]
        place = max(len(scores) - batch_size, 0)
        least = np.partition(scores, place)[place]
        above, level = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        return np.concatenate([above[np.argsort(-scores[above], kind="stable")], level])[:batch_size]


@dataclass(frozen=True)
class Oracle(TopScores):
    """The B steps a caller's function scores highest: for studies, e.g. those that lower the true error most.

    Sampling probability: P(i) = 1/B for those B (of equal ones the older), else 0. A batch needs B ≤ N. Source: the
    "oracle" of Schaul et al. 2016.

    Attributes:
        score: Takes ids int64 (N,), returns their scores (N,).
    """

    score: Callable[[Ids], npt.ArrayLike]

    def __post_init__(self) -> None:
        check(self, score=function("ids"))

    @property
    def takes_priorities(self) -> bool:
        """False: only the function determines the draws."""
        return False

    def scores(self, view: View) -> npt.ArrayLike:
        """Return the function's scores of the stored ids."""
        return self.score(view.ids)


class CustomEngine(RecordingEngine[CustomSampler]):
    """Draws by a `CustomSampler`, and keeps the records of stored steps for its views."""

    def __init__(self, core: _core.Replay, layout: Layout, seed: Seed, sampler: CustomSampler) -> None:
        super().__init__(core, layout, seed, sampler)
        self._axes = (layout.replicas or 1, layout.num_envs or 1)
        self._records = [Record(layout.capacity, self._axes[1]) for _ in self._generators]

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return sum(array.nbytes for record in self._records for array in vars(record).values())

    def record(self, ids: Ids, terminated: Bools, truncated: Bools) -> None:
        """Record ids, and where episodes end."""
        for record, rows, last in zip(self._records, ids, terminated | truncated, strict=True):
            record.stored(rows, last)

    def record_ends(self, ended: Bools) -> None:
        """Begin new episodes."""
        for record, row in zip(self._records, ended, strict=True):
            record.end_episode(row)

    def clear(self) -> None:
        """Drop every step."""
        with self.lock.held("add"):
            super().clear()
            for record in self._records:
                record.clear()

    def draw(self, batch_size: int, progress: npt.ArrayLike | None) -> Batch:
        """Draw a batch in every replica."""
        layout = self._layout
        with self.lock.held():
            views = [View(record, replica, layout.stride) for replica, record in enumerate(self._records)]
            self._core.check_draw(1)
            drawn = [
                self._drawn(view, record, batch_size, rng)
                for view, record, rng in zip(views, self._records, self._generators, strict=True)
            ]
            rows, distributions = zip(*drawn, strict=True)
            ids, probabilities = np.stack(rows), np.stack(distributions)
            units = ids
            if layout.stride is not None:
                blocks = self._blocks(ids)
                units, probabilities = blocks[..., 0], self._block_distribution(blocks, batch_size)
            progress_by_replica = np.broadcast_to(np.asarray(progress), len(views)).tolist()
            weights = [
                self._weights(view, row, share)
                for view, row, share in zip(views, probabilities, progress_by_replica, strict=True)
            ]
            for record, row in zip(self._records, ids, strict=True):  # replay counts, on which the next draw may depend
                np.add.at(record.counts, record.find(row)[0], 1)
            bookkeeping = {"weight": np.stack(weights).astype(np.float32), "probability": probabilities, "id": units}
            if layout.replicas is None:
                ids, bookkeeping = ids[0], {name: column[0] for name, column in bookkeeping.items()}
            columns = self._core.gather(ids, True)
            layout.relabel(columns)
            return layout.batch(columns | bookkeeping)

    def remove(self, ids: npt.ArrayLike) -> int:
        """Remove steps."""
        rows = ids_array(ids)
        with self.lock.held():
            count = super().remove(rows)
            for record, row in zip(self._records, rows.reshape(self._axes[0], -1), strict=True):
                record.remove(row)
        return count

    def probabilities(self, ids: npt.ArrayLike, batch_size: int, scheduled: list[float]) -> Floats:
        """Return the probabilities of these steps."""
        shape = super().probabilities(ids, batch_size, scheduled).shape  # only to check the ids
        rows = ids_array(ids).reshape(self._axes[0], -1)
        with self.lock.held():
            blocks = self._blocks(rows)
            block_probabilities = self._block_distribution(blocks, batch_size) * (blocks[..., 0] == rows)
            return np.asarray(block_probabilities).reshape(shape)

    def update(self, ids: npt.ArrayLike, values: npt.ArrayLike, are_errors: bool) -> int:
        """Record feedback."""
        rows, fed = ids_array(ids), values_array("td_error" if are_errors else "priority", values)
        count = super().update(rows, fed, are_errors)
        shape = (self._axes[0], -1)
        rows, fed = rows.reshape(shape), fed.reshape(shape)
        blocks = self._blocks(rows)  # feedback is the complete block's
        rows, fed = blocks.reshape(shape), np.repeat(fed, blocks.shape[-1], axis=-1)
        with self.lock.held():
            for record, row, value in zip(self._records, rows, np.abs(fed), strict=True):
                slots, stored = record.find(row)
                record.feedback[slots[stored]] = value[stored]
        return count

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of all records, to be saved."""
        entries = [(r, name, array) for r, record in enumerate(self._records) for name, array in vars(record).items()]
        return {f"custom{r}.{name}": array.copy() for r, name, array in entries}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Restore the state that `arrays` and `generators` returned."""
        for r, record in enumerate(self._records):
            record.restore({name: arrays[f"custom{r}.{name}"] for name in vars(record)})
        super().restore(arrays, generators)

    def _distribution_of(self, ids: Ids, batch_size: int) -> Floats:
        """Return the probabilities of ids (R, K); 0 for those no longer stored."""
        out = np.zeros(ids.shape)
        for r, record in enumerate(self._records):
            view = View(record, r, self._layout.stride)
            _, stored = record.find(ids[r])
            if stored.any():
                out[r, stored] = self._distribution(view, batch_size)[np.searchsorted(view.ids, ids[r, stored])]
        return out

    def _blocks(self, ids: Ids) -> Ids:
        """Return the ids of each id's sequence block, (R, n) → (R, n, stride), oldest first, then −1.

        Without sequences a block is the step itself.
        """
        if self._layout.stride is None:
            return ids[..., None]
        blocks = self._core.blocks(ids if self._layout.replicas is not None else ids[0], False)
        return blocks.reshape(*ids.shape, blocks.shape[-1])

    def _block_distribution(self, blocks: Ids, batch_size: int) -> Floats:
        """Return the probability of each block, (R, n)."""
        if not self._sampler.has_closed_form:
            return np.full(blocks.shape[:-1], np.nan)
        steps = self._distribution_of(blocks.reshape(len(blocks), -1), batch_size)
        return np.asarray(steps.reshape(blocks.shape).sum(-1))

    def _drawn(self, view: View, record: Record, batch_size: int, rng: np.random.Generator) -> tuple[Ids, Floats]:
        """Return the ids of a batch of one replica and their probabilities, (B,)."""
        sampler = self._sampler
        if isinstance(sampler, TopScores):  # its sampling distribution would score all steps again
            ids = self._checked(sampler.draw(view, batch_size, rng), record, batch_size)
            return ids, np.full(batch_size, 1.0 / batch_size)
        distribution = self._distribution(view, batch_size) if sampler.has_closed_form else np.full(len(view), np.nan)
        if (
            sampler.has_closed_form and type(sampler).draw is CustomSampler.draw
        ):  # would ask for the sampling distribution again
            ids = rng.choice(view.ids, size=batch_size, p=distribution)
        else:
            ids = self._checked(sampler.draw(view, batch_size, rng), record, batch_size)
        return ids, distribution[np.searchsorted(view.ids, ids)]

    def _weights(self, view: View, probabilities: Floats, progress: float | None) -> Floats:
        words = f"{len(probabilities)} weights, one a row, finite in float32 and not negative"
        most = np.finfo(np.float32).max
        rule = ArrayOf(probabilities.shape, words, holds=lambda array: (array >= 0) & (array <= most))
        return self._returned("weights", self._sampler.weights(view, probabilities, progress), rule).astype(np.float64)

    def _checked(self, drawn: Any, record: Record, batch_size: int) -> Ids:
        """Return the ids that a sampler drew, after checking their number and that they are stored."""
        count = self._sampler.rows(batch_size)
        words = f"the ids of {count} stored steps, int64, taken from view.ids"
        rule = ArrayOf((count,), words, "iu", holds=lambda ids: record.find(ids)[1])
        return self._returned("draw", drawn, rule).astype(np.int64)

    def _distribution(self, view: View, batch_size: int) -> Floats:
        words = f"{len(view)} chances that sum to 1"
        rule = ArrayOf((len(view),), words, holds=lambda array: array >= 0)
        distribution = self._returned("distribution", self._sampler.distribution(view, batch_size), rule).astype(
            np.float64
        )
        total = distribution.sum()
        if not abs(total - 1.0) <= SUMS_TO_ONE:
            raise ConfigError(
                f"`distribution` of {type(self._sampler).__name__} must return {words}, but returned a sum of {total}; "
                "divide them by their sum"
            )
        return distribution if abs(total - 1.0) <= DRAWN_AS_IT_IS else np.asarray(distribution / total)

    def _returned(self, method: str, value: Any, rule: ArrayOf) -> npt.NDArray[Any]:
        return returned(f"`{method}` of {type(self._sampler).__name__}", value, rule)
