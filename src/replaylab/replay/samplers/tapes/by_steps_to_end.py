"""A placebo that draws steps as near to the ends of episodes, and as old, as those that a recorded run drew.

A step's bin is its kind, how far it is from its episode's end, and its age. Kinds: 0 of a running episode, 1 of a
truncated one, 2 of a terminated one. Distances and ages are in magnitudes: 0, 1, 2–3, 4–7 and so on, by the bit length.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.errors import ConfigError
from replaylab.replay.data.seeding import Seed
from replaylab.replay.samplers.engine import DrawEngine, EpisodeFlags, Floats, Layout
from replaylab.replay.samplers.tapes.tape import Tape, TapeEngine
from replaylab.replay.samplers.tapes.tape_file import Ids

RUNNING, TRUNCATED, TERMINATED = range(3)
_MAGNITUDES = 64
"""An exclusive bound of magnitudes."""

_ID_BITS = 48
"""The low bits of a key hold the id; the bits above hold the group, which is kind and distance together."""


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

    def engine(self, core: _core.Replay, layout: Layout, seed: Seed) -> DrawEngine:
        """Return what draws for a buffer."""
        return ByStepsToEndEngine(core, layout, seed, self)


def magnitude(numbers: npt.NDArray[Any]) -> Ids:
    """Return the bit lengths of whole numbers: 0, 1, 2 for 2–3, 3 for 4–7 and so on."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


class Ends:
    """The steps of one replica that ended episodes.

    Args:
        ends: As in a tape: twice the id, plus 1 if the episode terminated, ascending.
    """

    def __init__(self, ends: Ids) -> None:
        self.ends = ends
        self._ids = ends >> 1

    def groups(self, ids: Ids, newest: int) -> Ids:
        """Return kind and distance of steps, as one number, at the time when `newest` was the newest step."""
        place = np.searchsorted(self._ids, ids)
        known = place < np.searchsorted(self._ids, newest, side="right")
        end = self.ends[np.minimum(place, len(self.ends) - 1)] if len(self.ends) else np.zeros(ids.shape, np.int64)
        finished = (TRUNCATED + (end & 1)) * _MAGNITUDES + magnitude(np.maximum((end >> 1) - ids, 0))
        return np.where(known, finished, RUNNING)


class StoredSteps:
    """The stored steps of one replica, by their groups.

    Attributes:
        ends: Those of its episodes, as far as steps of theirs may be stored.
    """

    def __init__(self, capacity: int, ends: Ids) -> None:
        self._capacity = capacity
        self.ends: Ids = np.empty(0, np.int64)
        self._keys: Ids = np.empty(0, np.int64)  # group and id of each step of finished episodes, ascending
        for end in ends.tolist():
            self.end(end >> 1, bool(end & 1))

    @property
    def open(self) -> int:
        """The first id that is of no finished episode."""
        return int(self.ends[-1] >> 1) + 1 if len(self.ends) else 0

    def end(self, last: int, terminated: bool) -> None:
        """Take note that an episode ended with this step."""
        oldest = last + 1 - self._capacity
        ids = np.arange(max(self.open, oldest), last + 1)
        self.ends = np.append(self.ends[self.ends >> 1 >= oldest], 2 * last + terminated)
        groups = Ends(self.ends[-1:]).groups(ids, last)
        old = self._keys[_id(self._keys) >= oldest]
        self._keys = np.sort(np.concatenate([old, (groups << _ID_BITS) + ids]), kind="stable")

    def ranges(self, groups: Ids, ages: Ids, oldest: int, newest: int) -> tuple[Ids, Ids]:
        """Return where the steps of bins begin, and how many there are; of the running episode the first is an id."""
        youngest = np.where(ages > 0, newest - (1 << np.maximum(ages - 1, 0)), newest)
        first = np.maximum(newest + 1 - (1 << ages), oldest)
        running = groups == RUNNING
        low, high = (groups << _ID_BITS) + first, (groups << _ID_BITS) + youngest + 1
        first = np.maximum(first, self.open)
        start = np.where(running, first, np.searchsorted(self._keys, low))
        stop = np.where(running, youngest + 1, np.searchsorted(self._keys, high))
        return start, np.maximum(stop - start, 0)

    def ids(self, groups: Ids, places: Ids) -> Ids:
        """Return the ids of steps from where they are, as `ranges` counts."""
        finished = groups != RUNNING
        step_ids = places.copy()
        step_ids[finished] = _id(self._keys[places[finished]])
        return step_ids


def _id(keys: Ids) -> Ids:
    return keys & ((1 << _ID_BITS) - 1)


class ByStepsToEndEngine(TapeEngine):
    """Draws by the bins of a tape's rows, and remembers where episodes ended.

    Raises:
        ConfigError: The buffer has several environments for each replica, or the tape no ends of episodes.
    """

    def __init__(self, core: _core.Replay, layout: Layout, seed: Seed, sampler: Tape) -> None:
        super().__init__(core, layout, seed, sampler)
        if (layout.num_envs or 1) > 1:
            raise ConfigError(
                f"ByStepsToEnd needs a buffer of one environment, but got num_envs={layout.num_envs}; make the "
                "environments replicas"
            )
        self._recorded = [Ends(ends) for ends in self._tape.ends()]
        self._stored = [StoredSteps(layout.capacity, np.empty(0, np.int64)) for _ in self._origins]
        self._every = _every_bin(layout.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored steps' keys, when all are of finished episodes."""
        return 8 * self._layout.capacity * len(self._origins)

    def store(self, store: Callable[[], Any], values: Mapping[str, Any], length: int) -> Any:
        """Let the core store steps, and take note of where episodes end."""
        flags = EpisodeFlags(values)
        with self.lock.held(adding=True):
            ids = store()
            shape = (len(self._origins), length, 1)
            terminated, truncated = flags.of_shape(shape)
            rows = np.reshape(ids, shape)
            for r, t, _ in np.argwhere((terminated | truncated) & (rows >= 0)):
                self._stored[r].end(int(rows[r, t, 0]), bool(terminated[r, t, 0]))
        return ids

    def end_episode(self, where: npt.ArrayLike | None) -> None:
        """Take note that episodes were truncated."""
        super().end_episode(where)
        with self.lock.held():
            ended = np.ones(len(self._origins), np.bool_) if where is None else np.asarray(where, np.bool_).reshape(-1)
            for stored, ends, next_id in zip(self._stored, ended, self._core.counts()[1], strict=True):
                if ends and next_id > stored.open:
                    stored.end(next_id - 1, terminated=False)

    def choose(self, recorded: Ids, newest: Ids) -> tuple[Ids, Floats]:
        """Return a step of the bin of each recorded one, (R, B), and its probability."""
        chosen = [
            self._of_replica(r, ids, int(last)) for r, (ids, last) in enumerate(zip(recorded, newest, strict=True))
        ]
        ids, probabilities = zip(*chosen, strict=True)
        return np.stack(ids), np.stack(probabilities)

    def _of_replica(self, r: int, recorded: Ids, newest: int) -> tuple[Ids, Floats]:
        stored, oldest = self._stored[r], newest + 1 - self._core.counts()[0][r]
        steps, row, times = np.unique(recorded, return_inverse=True, return_counts=True)
        groups, ages = self._recorded[self._origins[r]].groups(steps, newest), magnitude(newest - steps)
        starts, counts = stored.ranges(groups, ages, oldest, newest)
        empty = counts == 0
        if empty.any():
            asked = groups.copy(), ages.copy()
            every_group, every_age = self._every
            places, sizes = stored.ranges(every_group, every_age, oldest, newest)
            held = np.flatnonzero(sizes)
            near = held[_nearest(groups[empty], ages[empty], every_group[held], every_age[held])]
            groups[empty], ages[empty] = every_group[near], every_age[near]
            starts[empty], counts[empty] = places[near], sizes[near]
            self._moved[r] += times[_far(*asked, groups, ages)].sum()
        _, bins = np.unique(groups * _MAGNITUDES + ages, return_inverse=True)
        ids = stored.ids(groups, _places(self._generators[r], bins, starts, counts))
        return ids[row], (np.bincount(bins, times)[bins] / counts / len(row))[row]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return how far the tape is, where each replica's draws come from, and where its episodes ended."""
        ends = {f"custom{r}.ends": stored.ends for r, stored in enumerate(self._stored)}
        return super().arrays() | ends | {f"custom{r}.moved": np.array([n]) for r, n in enumerate(self._moved)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        replicas = range(len(self._origins))
        self._stored = [StoredSteps(self._layout.capacity, arrays[f"custom{r}.ends"]) for r in replicas]
        self._moved = np.concatenate([arrays[f"custom{r}.moved"] for r in replicas])
        super().restore(arrays, generators)


def _every_bin(capacity: int) -> tuple[Ids, Ids]:
    """Return the groups and ages of all bins that a buffer may have."""
    magnitudes = np.arange(capacity.bit_length() + 1)
    finished = [kind * _MAGNITUDES + magnitudes for kind in (TRUNCATED, TERMINATED)]
    groups = np.concatenate([[RUNNING], *finished])
    return np.repeat(groups, len(magnitudes)), np.tile(magnitudes, len(groups))


def _places(random: np.random.Generator, bins: Ids, starts: Ids, counts: Ids) -> Ids:
    """Return a place for each step, evenly from its bin's; different ones if the bin has enough."""
    offsets = random.integers(0, counts)
    enough = np.bincount(bins)[bins] <= counts
    while True:
        first = np.unique(bins * counts.max() + offsets, return_index=True)[1]
        again = enough.copy()
        again[first] = False
        if not again.any():
            return starts + offsets
        offsets[again] = random.integers(0, counts[again])


def _far(groups: Ids, ages: Ids, other_groups: Ids, other_ages: Ids) -> npt.NDArray[np.bool_]:
    """Return which bins are of another kind than the others, or more than one bin away from them."""
    other_kind = groups // _MAGNITUDES != other_groups // _MAGNITUDES
    return np.asarray(other_kind | (np.abs(groups - other_groups) > 1) | (np.abs(ages - other_ages) > 1))


def _nearest(wanted_groups: Ids, wanted_ages: Ids, groups: Ids, ages: Ids) -> Ids:
    """Return which of the bins of `groups` and `ages` is nearest to each wanted one.

    A running episode ends later than it was stored, so its steps count as being as far from their end as they are old.
    """
    kind, kinds = wanted_groups[:, None] // _MAGNITUDES, groups // _MAGNITUDES
    distance = np.where(wanted_groups == RUNNING, wanted_ages, wanted_groups % _MAGNITUDES)[:, None]
    apart = np.abs(np.where(kinds == RUNNING, ages, groups % _MAGNITUDES) - distance)
    total = apart + np.abs(ages - wanted_ages[:, None])
    order = (((kinds != kind) * 2 * _MAGNITUDES + total) * _MAGNITUDES + apart) * _MAGNITUDES + ages
    nearest: Ids = order.argmin(1)
    return nearest
