"""Bins of stored steps: how an episode ended, how far a step is from that end, and how old the step is.

Kinds: 0 of a running episode, 1 of a truncated one, 2 of a terminated one. Distances and ages are in magnitudes: 0, 1,
2–3, 4–7 and so on, by the bit length.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.research.tape_file import Ids

ID_BITS = 40
"""The low bits of a key hold the id; those above what is before it in the order."""


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

    def of(self, ends: Ids, replica: Ids, steps: Ids, newest: Ids) -> Ids:
        """Return the bins of steps, counted over the replicas, at the time when `newest` was the newest step.

        Args:
            ends: Ends of episodes, as `flat_ends` returns them.
            replica: The replica of each step.
            steps: Ids.
            newest: The newest id of each replica, (R,).
        """
        end = ends[np.searchsorted(ends, (replica << ID_BITS + 1) + 2 * steps)]
        last = id_of(end >> 1)
        groups = np.where(last <= newest[replica], self.group(end & 1, last - steps), 0)
        return np.asarray((replica * self.groups + groups) * self.magnitudes + magnitude(newest[replica] - steps))

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
        younger = (
            1 << np.arange(numbers.magnitudes + 1)
        ) >> 1  # steps younger than those of a magnitude: 0, 1, 2, 4, ...
        cuts = np.maximum(newest[:, None] + 1 - younger, oldest[:, None])[:, None]
        groups = np.arange(len(newest) * numbers.groups).reshape(len(newest), numbers.groups, 1) << ID_BITS
        places = np.searchsorted(keys, groups + cuts)
        self.starts = places[..., 1:].ravel()
        self.counts = (places[..., :-1] - places[..., 1:]).ravel()
        self._numbers, self._newest = numbers, newest
        self._nearest = np.where(self.counts > 0, np.arange(len(self.counts)), -1)  # -1: not known yet

    def nearest(self, wanted: Ids) -> Ids:
        """Return the wanted bins, or in place of empty ones the nearest that has steps."""
        unknown = np.unique(wanted[self._nearest[wanted] < 0])
        if len(unknown):
            self._nearest[unknown] = self._numbers.nearest(unknown, self.counts)
        return self._nearest[wanted]

    def ids(self, places: Ids) -> Ids:
        """Return the ids of steps from their places."""
        return id_of(self._keys[places])


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
        old = self._keys[r][id_of(self._keys[r]) >= oldest]
        new = (first_group + self.numbers.group(terminated, last - ids) << ID_BITS) + ids
        self._keys[r] = np.sort(np.concatenate([old, new]), kind="stable")

    def bins(self, oldest: Ids, newest: Ids) -> StoredBins:
        """Return where the steps of each bin are now."""
        keys = []
        for r, finished in enumerate(self._keys):
            running = np.arange(max(self.open(r), oldest[r]), newest[r] + 1)
            keys += [(r * self.numbers.groups << ID_BITS) + running, finished]
        return StoredBins(np.concatenate(keys), oldest, newest, self.numbers)


def id_of(keys: Ids) -> Ids:
    """Return the ids in keys."""
    return keys & ((1 << ID_BITS) - 1)


def flat_ends(ends: Sequence[Ids]) -> Ids:
    """Return the replica and the end of each episode, ascending; a replica's last end is never reached."""
    never = [(1 << ID_BITS + 1) - 1]
    return np.concatenate([(r << ID_BITS + 1) + np.append(ended, never) for r, ended in enumerate(ends)])
