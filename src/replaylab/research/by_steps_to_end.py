"""A placebo that draws steps as near to the ends of episodes, and as old, as those that a recorded run drew.

A step's bin is its kind, how far it is from its episode's end, and its age. Kinds: 0 of a running episode, 1 of a
truncated one, 2 of a terminated one. Distances and ages are in magnitudes: 0, 1, 2–3, 4–7 and so on, by the bit length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError
from replaylab.replay import Seed
from replaylab.replay.samplers.engine import Bools, Core, DrawEngine, Floats, Layout, RecordingEngine
from replaylab.research.tape import Tape, TapeEngine
from replaylab.research.tape_file import Ids

_ID_BITS = 40
"""The low bits of a key hold the id; those above what is before it in the order."""


@dataclass(frozen=True)
class ByStepsToEnd(Tape):
    """Replace each recorded row by a step at the same distance from its episode's end and of the same age.

    A placebo for choosing by TD error: it keeps where in an episode a run drew, and chooses evenly otherwise. For row k
    of the recorded draw it draws a stored step from row k's bin. A bin holds the steps with the same number of steps to
    the end of their episode and the same age, each in 0, 1, 2–3, 4–7, ...; running, truncated and terminated episodes
    have their own bins. Rows that repeat in the record repeat here, and different rows become different steps if the
    bin holds enough.

    If nothing stored is in the bin, the nearest bin with a step is used: of the same kind of episode if possible, then
    with the smallest sum of both differences, then with the smallest difference in steps to the end.
    `ReplayStats.moved_share` is the share of rows whose step is of another kind, or more than one bin away in steps to
    the end or in age. The buffer must have one environment for each replica. Feedback
    changes nothing; every weight is 1.

    Sampling probability of the next draw of B rows: P(i) = Σ_k [i is in row k's bin] / steps in that bin / B. Source:
    none, a placebo of this library; attributes and defaults: those of `Tape`.
    """

    no_closed_form: ClassVar[str] = (
        "it changes with every draw of the tape; batch.probability is that of the rows as they were drawn"
    )
    needs_episodes: ClassVar[bool] = True
    end_fields: ClassVar[tuple[str, ...]] = ENDS

    def engine(self, core: Core, layout: Layout, seed: Seed) -> DrawEngine:
        """Return what draws for a buffer."""
        return ByStepsToEndEngine(core, layout, seed, self)


def magnitude(numbers: npt.NDArray[Any]) -> Ids:
    """Return the bit lengths of whole numbers: 0, 1, 2 for 2–3, 3 for 4–7 and so on."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


class BinNumbers:
    """The numbers of the bins of R replicas.

    A replica's groups are the steps of running episodes, of truncated ones by the magnitude of their distance, and of
    terminated ones likewise; a group's bins are the magnitudes of ages.

    Args:
        capacity: The most steps stored of a replica, so that no distance or age is larger.
    """

    def __init__(self, capacity: int) -> None:
        self.magnitudes = capacity.bit_length() + 1
        self.groups = 1 + 2 * self.magnitudes
        self.bins = self.groups * self.magnitudes

    def group(self, terminated: Any, distance: npt.NDArray[Any]) -> Ids:
        """Return the groups of steps of finished episodes."""
        return np.asarray(1 + terminated * self.magnitudes + magnitude(distance))

    def kind_and_distance(self, bins: Ids) -> tuple[Ids, Ids]:
        """Return the kinds and the magnitudes of distances of bins; those of running episodes have kind 0."""
        groups = bins // self.magnitudes % self.groups
        return (groups + self.magnitudes - 1) // self.magnitudes, (groups - 1) % self.magnitudes

    def age(self, bins: Ids) -> Ids:
        """Return the magnitudes of ages of bins."""
        return bins % self.magnitudes

    def far(self, bins: Ids, others: Ids) -> npt.NDArray[np.bool_]:
        """Return which bins are of another kind than the others, or more than one bin away from them."""
        (kind, distance), (other_kind, other_distance) = map(self.kind_and_distance, (bins, others))
        apart = np.maximum(np.abs(distance - other_distance), np.abs(self.age(bins) - self.age(others)))
        return np.asarray((kind != other_kind) | (apart > 1))

    def nearest(self, wanted: Ids, counts: Ids) -> Ids:
        """Return for each wanted bin the nearest bin of its replica that has steps.

        A running episode ends later than it was stored, so its steps count as being as far from their end as they are
        old.

        Args:
            wanted: Bins.
            counts: Number of steps in each bin, over all replicas.
        """
        bins, replicas = np.arange(self.bins), wanted // self.bins
        kinds, distances = self.kind_and_distance(bins)
        distances = np.where(kinds == 0, self.age(bins), distances)
        wanted_bins, most = (wanted % self.bins)[:, None], 2 * self.magnitudes
        apart = np.abs(distances - distances[wanted_bins])
        total = apart + np.abs(self.age(bins) - self.age(wanted_bins))
        order = (((kinds != kinds[wanted_bins]) * 2 * most + total) * most + apart) * most + self.age(bins)
        filled = counts.reshape(-1, self.bins)[replicas] > 0
        return np.asarray(replicas * self.bins + np.where(filled, order, np.iinfo(np.int64).max).argmin(1))


class StoredBins:
    """Where the stored steps of each bin are, as long as none is added.

    Args:
        keys: The group, counted over the replicas, and the id of each step, ascending.
        oldest: The oldest id of each replica, (R,).
        newest: The newest id of each replica, (R,).
        numbers: Those of the bins.
    """

    def __init__(self, keys: Ids, oldest: Ids, newest: Ids, numbers: BinNumbers) -> None:
        self._keys = keys
        ages = np.arange(numbers.magnitudes)
        first = np.maximum(newest[:, None] + 1 - (1 << ages), oldest[:, None])
        last = newest[:, None] - ((1 << ages) >> 1)
        groups = np.arange(len(newest) * numbers.groups).reshape(len(newest), numbers.groups, 1) << _ID_BITS
        self.starts = np.searchsorted(keys, (groups + first[:, None]).ravel())
        self.counts = np.maximum(np.searchsorted(keys, (groups + last[:, None]).ravel(), "right") - self.starts, 0)
        self._numbers = numbers
        self._nearest = np.where(self.counts > 0, np.arange(len(self.counts)), -1)  # -1: not known yet

    def nearest(self, wanted: Ids) -> Ids:
        """Return the wanted bins, or in place of empty ones the nearest that has steps."""
        unknown = np.unique(wanted[self._nearest[wanted] < 0])
        if len(unknown):
            self._nearest[unknown] = self._numbers.nearest(unknown, self.counts)
        return self._nearest[wanted]

    def ids(self, places: Ids) -> Ids:
        """Return the ids of steps from their places."""
        return _id(self._keys[places])


class StoredSteps:
    """The stored steps of R replicas.

    Args:
        ends: For each replica the steps that ended episodes, as in a tape: twice the id, plus 1 if the episode
            terminated, ascending.
    """

    def __init__(self, capacity: int, ends: Sequence[Ids]) -> None:
        self._capacity, self.numbers = capacity, BinNumbers(capacity)
        self.ends: list[Ids] = [np.empty(0, np.int64) for _ in ends]  # as far as steps of the episodes may be stored
        self._keys: list[Ids] = [np.empty(0, np.int64) for _ in ends]  # of the steps of finished episodes, ascending
        for r, ended in enumerate(ends):
            for end in ended.tolist():
                self.end(r, end >> 1, bool(end & 1))

    def open(self, r: int) -> int:
        """Return a replica's first id that is of no finished episode."""
        return int(self.ends[r][-1] >> 1) + 1 if len(self.ends[r]) else 0

    def end(self, r: int, last: int, terminated: bool) -> None:
        """Take note that an episode of replica `r` ended with this step."""
        oldest, first_group = last + 1 - self._capacity, r * self.numbers.groups
        ids = np.arange(max(self.open(r), oldest), last + 1)
        self.ends[r] = np.append(self.ends[r][self.ends[r] >> 1 >= oldest], 2 * last + terminated)
        old = self._keys[r][_id(self._keys[r]) >= oldest]
        new = (first_group + self.numbers.group(terminated, last - ids) << _ID_BITS) + ids
        self._keys[r] = np.sort(np.concatenate([old, new]), kind="stable")

    def bins(self, oldest: Ids, newest: Ids) -> StoredBins:
        """Return where the steps of each bin are now."""
        keys = []
        for r, finished in enumerate(self._keys):
            running = np.arange(max(self.open(r), oldest[r]), newest[r] + 1)
            keys += [(r * self.numbers.groups << _ID_BITS) + running, finished]
        return StoredBins(np.concatenate(keys), oldest, newest, self.numbers)


def _id(keys: Ids) -> Ids:
    return keys & ((1 << _ID_BITS) - 1)


class ByStepsToEndEngine(RecordingEngine[Tape], TapeEngine):
    """Draws by the bins of a tape's rows, and remembers where episodes ended.

    Raises:
        ConfigError: The buffer has several environments for each replica, or the tape no ends of episodes.
    """

    def __init__(self, core: Core, layout: Layout, seed: Seed, sampler: Tape) -> None:
        super().__init__(core, layout, seed, sampler)
        if (layout.num_envs or 1) > 1:
            raise ConfigError(
                f"ByStepsToEnd needs a buffer of one environment, but got num_envs={layout.num_envs}; make the "
                "environments replicas"
            )
        self._stored = StoredSteps(layout.capacity, [np.empty(0, np.int64)] * len(self._origins))
        self._bins: StoredBins | None = None  # until the next step is stored
        self._ends = self._recorded_ends()

    @property
    def nbytes(self) -> int:
        """Bytes of the stored steps' keys, when all are of finished episodes."""
        return 8 * self._layout.capacity * len(self._origins)

    def record(self, ids: Ids, terminated: Bools, truncated: Bools) -> None:
        """Take note of where episodes end."""
        self._bins = None
        for r, t, _ in np.argwhere((terminated | truncated) & (ids >= 0)):
            self._stored.end(int(r), int(ids[r, t, 0]), bool(terminated[r, t, 0]))

    def record_ends(self, ended: Bools) -> None:
        """Take note that episodes were truncated."""
        for r, (ends, next_id) in enumerate(zip(ended[:, 0], self._core.counts()[1], strict=True)):
            if ends and next_id > self._stored.open(r):
                self._stored.end(r, next_id - 1, terminated=False)
                self._bins = None

    def choose(self, recorded: Ids, newest: Ids) -> tuple[Ids, Floats]:
        """Return a step of the bin of each recorded one, (R, B), and its probability."""
        replicas, rows = recorded.shape
        keys, row, times = np.unique(
            (np.arange(replicas)[:, None] << _ID_BITS) + recorded, return_inverse=True, return_counts=True
        )
        if self._bins is None:
            self._bins = self._stored.bins(newest + 1 - np.asarray(self._core.counts()[0]), newest)
        asked = self._bins_of(keys >> _ID_BITS, _id(keys), newest)
        bins = self._bins.nearest(asked)
        far = self._stored.numbers.far(asked, bins)
        np.add.at(self._moved, keys[far] >> _ID_BITS, times[far])
        counts = self._bins.counts[bins]
        replica = np.searchsorted(keys >> _ID_BITS, np.arange(replicas + 1))
        ids = self._bins.ids(self._bins.starts[bins] + _offsets(self._generators, replica, bins, counts))
        probabilities = np.bincount(bins, times)[bins] / counts / rows
        return ids[row].reshape(recorded.shape), probabilities[row].reshape(recorded.shape)

    def _recorded_ends(self) -> Ids:
        """Return the replica and the end of each recorded episode, ascending; a replica's last end is never reached."""
        ends = self._tape.ends()
        never = [(1 << _ID_BITS + 1) - 1]
        return np.concatenate(
            [(r << _ID_BITS + 1) + np.append(ends[origin], never) for r, origin in enumerate(self._origins)]
        )

    def _bins_of(self, replica: Ids, steps: Ids, newest: Ids) -> Ids:
        """Return the bins of recorded steps, at the time when `newest` was the newest step."""
        numbers = self._stored.numbers
        end = self._ends[np.searchsorted(self._ends, (replica << _ID_BITS + 1) + 2 * steps)]
        last = _id(end >> 1)
        finished = numbers.group(end & 1, last - steps)
        groups = np.where(last <= newest[replica], finished, 0)
        return (replica * numbers.groups + groups) * numbers.magnitudes + magnitude(newest[replica] - steps)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return how far the tape is, where each replica's draws come from, and where its episodes ended."""
        ends = {f"custom{r}.ends": ended for r, ended in enumerate(self._stored.ends)}
        return super().arrays() | ends | {f"custom{r}.moved": np.array([n]) for r, n in enumerate(self._moved)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        replicas = range(len(self._origins))
        self._stored = StoredSteps(self._layout.capacity, [arrays[f"custom{r}.ends"] for r in replicas])
        self._bins = None
        self._moved = np.concatenate([arrays[f"custom{r}.moved"] for r in replicas])
        super().restore(arrays, generators)
        self._ends = self._recorded_ends()


def _offsets(generators: Sequence[np.random.Generator], replica: Ids, bins: Ids, counts: Ids) -> Ids:
    """Return an offset into its bin for each step, evenly; different ones if the bin has enough.

    Args:
        generators: One for each replica.
        replica: Where the steps of each replica begin, and where the last one's end.
        bins: Bin of each step.
        counts: Number of steps in that bin.
    """
    offsets, again = np.empty_like(counts), np.arange(len(counts))
    distinct = np.flatnonzero(np.bincount(bins)[bins] <= counts)
    while len(again):
        cuts = np.searchsorted(again, replica).tolist()
        for random, start, stop in zip(generators, cuts[:-1], cuts[1:], strict=True):
            if start < stop:
                drawn = again[start:stop]
                offsets[drawn] = random.integers(0, counts[drawn])
        again = distinct[_repeats(bins[distinct] * counts.max() + offsets[distinct])]
        with_repeats = np.zeros(bins.max() + 1, np.bool_)
        with_repeats[bins[again]] = True
        distinct = distinct[with_repeats[bins[distinct]]]
    return offsets


def _repeats(numbers: Ids) -> npt.NDArray[np.bool_]:
    """Return which numbers were there before."""
    repeats = np.ones(len(numbers), np.bool_)
    repeats[np.unique(numbers, return_index=True)[1]] = False
    return repeats
