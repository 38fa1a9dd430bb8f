"""Samplers that choose a bin of stored steps, and then a step of that bin (`episode_bins`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, POSITIVE, check, number, option
from replaylab.episode_ends import ENDS
from replaylab.errors import SnapshotError
from replaylab.replay import Batch, Sampler, Schedule, Seed, scheduled
from replaylab.replay.samplers.engine import Bools, Core, DrawEngine, Floats, Layout
from replaylab.research.episode_bins import EpisodeBinsEngine, StoredBins, flat_ends
from replaylab.research.tape_file import Ids

EXPONENT = number("in [0, 2]", lambda exponent: 0.0 <= exponent <= 2.0)


@dataclass(frozen=True)
class BinnedPrioritized(Sampler):
    """Two dials: how much TD errors decide from which bins steps come, and how much which steps of a bin come.

    A bin holds the stored steps of the same kind of episode (running, truncated or terminated), the same number of
    steps to its end and the same age, each in 0, 1, 2–3, 4–7, .... Sampling probability of a step i of bin b, with
    p = |δ| + ε: P(i) = Σ_{j in b} p_j^between / Σ_{all j} p_j^between · p_i^within / Σ_{j in b} p_j^within. Rows are
    independent, and all weights are 1.

    With both exponents 0 draws are uniform. With ``within=0`` each bin is drawn as often as by TD error, and its steps
    evenly. With ``between=0`` each bin is drawn as often as by uniform draws, and its steps by TD error. With both
    equal to α the distribution is that of ``Prioritized(alpha=α, stratified=False)``.

    A new step has the largest p^between and p^within now stored, 1 if there is none. The buffer must have
    ``terminated`` or ``truncated``, or ``episodes="manual"``, and one environment for each replica. Source: none, of
    this library.

    Attributes:
        between: Exponent in [0, 2] of a bin's share. Default: 0.6.
        within: Exponent in [0, 2] of a step's share of its bin. Default: 0.6.
        epsilon: ε > 0, added to every |δ|. Default: 1e-6.
    """

    between: float = option(EXPONENT, 0.6)
    within: float = option(EXPONENT, 0.6)
    epsilon: float = option(POSITIVE, 1e-6)

    wants_feedback: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    end_fields: ClassVar[tuple[str, ...]] = ENDS
    in_core: ClassVar[bool] = False
    draws_sequences: ClassVar[bool] = False
    allows_removal: ClassVar[bool] = False

    @property
    def takes_priorities(self) -> bool:
        """False: two powers of a TD error are kept, so a priority would not say which."""
        return False

    def engine(self, core: Core, layout: Layout, seed: Seed) -> DrawEngine:
        """Return what draws for a buffer."""
        return BinnedPrioritizedEngine(core, layout, seed, self)


@dataclass(frozen=True)
class MatchedEnds(Sampler):
    """Last steps of terminated episodes more often than others, by a share that may change over a run.

    With probability s one of the L stored steps that terminated their episode, each of them alike, otherwise any step;
    while L = 0, any step. Sampling probability: P(i) = (1 − s)/N + s·[i is among them]/L. Rows are independent, and all
    weights are 1. It is `EpisodeEnds` with one last step, and a schedule: with a `Table` it draws as many ends as
    another strategy did at the same progress. The buffer must have ``terminated``, and one environment for each
    replica. Source: none, of this library.

    Attributes:
        share: s in [0, 1], a number or a schedule over training progress. With a schedule, pass ``progress`` to
            `sample`.
    """

    share: float | Schedule

    distribution_needs_progress: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    end_fields: ClassVar[tuple[str, ...]] = ENDS[:1]
    in_core: ClassVar[bool] = False
    draws_sequences: ClassVar[bool] = False
    allows_removal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, share=scheduled(FRACTION))

    @property
    def scheduled(self) -> float | Schedule:
        """The share s."""
        return self.share

    def engine(self, core: Core, layout: Layout, seed: Seed) -> DrawEngine:
        """Return what draws for a buffer."""
        return MatchedEndsEngine(core, layout, seed, self)


class _BinEngine(EpisodeBinsEngine[Any]):
    """Chooses a bin, and then a step of it.

    Shapes: R replicas, G bins of a replica, M steps of all replicas by their places in `StoredBins`.
    """

    def distribution(self, stored: StoredBins, values: list[float]) -> tuple[Floats, Floats | None, Floats]:
        """Return how bins and steps are drawn at these values of the schedule.

        Returns:
            The probability of each bin, (R, G); the masses by which a bin's steps are drawn, (M,), None if they are all
            1; and their sum in each bin, (R·G,).
        """
        raise NotImplementedError

    def draw(self, batch_size: int, progress: npt.ArrayLike | None) -> Batch:
        """Draw a batch in every replica."""
        layout = self._layout
        with self.lock.held():
            self._core.check_draw(1)
            stored = self.stored_bins()
            shares, masses, sums = self.distribution(stored, layout.schedules.at(progress))
            uniform = np.stack([generator.random((2, batch_size)) for generator in self._generators])
            bins = np.stack([_choose(row, targets[0]) for row, targets in zip(shares, uniform, strict=True)])
            bins += np.arange(len(shares))[:, None] * shares.shape[1]
            places = stored.choose(bins, uniform[:, 1], masses)
            ids = stored.ids(places)
            probability = shares.ravel()[bins] * (1.0 if masses is None else masses[places]) / sums[bins]
            if layout.replicas is None:
                ids, probability = ids[0], probability[0]
            columns = self._core.gather(ids, True)
            layout.relabel(columns)
            weight = np.ones(ids.shape, np.float32)
            return layout.batch(columns | {"weight": weight, "probability": probability, "id": ids})

    def probabilities(self, ids: npt.ArrayLike, batch_size: int, scheduled: list[float]) -> Floats:
        """Return the probabilities of these steps."""
        shape = super().probabilities(ids, batch_size, scheduled).shape  # only to check the ids
        rows = np.asarray(ids, np.int64).reshape(len(self._generators), -1)
        out = np.zeros(rows.shape)
        with self.lock.held():
            where = np.nonzero(self.is_stored(rows))
            if len(where[0]):
                stored = self.stored_bins()
                shares, masses, sums = self.distribution(stored, scheduled)
                places, bins = stored.places(flat_ends(self._stored.ends), where[0], rows[where])
                out[where] = shares.ravel()[bins] * (1.0 if masses is None else masses[places]) / sums[bins]
        return out.reshape(shape)

    def is_stored(self, ids: Ids) -> Bools:
        """Return which ids (R, ...) are stored."""
        oldest, newest = (bound[:, None] for bound in self.oldest_and_newest())
        return np.asarray((ids >= oldest) & (ids <= newest))


class BinnedPrioritizedEngine(_BinEngine):
    """Draws by two powers of the TD errors, of which it keeps those that are not 1."""

    def __init__(self, core: Core, layout: Layout, seed: Seed, sampler: BinnedPrioritized) -> None:
        super().__init__(core, layout, seed, sampler)
        self._exponents = sorted({sampler.between, sampler.within} - {0.0})
        self._powers = np.zeros((len(self._exponents), len(self._generators), layout.capacity))  # 0: nothing stored

    @property
    def nbytes(self) -> int:
        """Bytes of the powers, and of the keys."""
        return super().nbytes + self._powers.nbytes

    def distribution(
        self,
        stored: StoredBins,
        values: list[float],  # noqa: ARG002
    ) -> tuple[Floats, Floats | None, Floats]:
        """Return Σ_{j in b} p_j^between / Σ p_j^between, p^within and its sums."""
        slots = self._stored.slots(*self.oldest_and_newest()) if self._exponents else None
        masses = {a: power.ravel()[slots] for a, power in zip(self._exponents, self._powers, strict=True)}
        sums = {a: stored.sums(mass) for a, mass in masses.items()} | {0.0: stored.counts.astype(np.float64)}
        shares = sums[self._sampler.between].reshape(len(self._generators), -1)
        within = self._sampler.within
        return np.asarray(shares / shares.sum(1, keepdims=True)), masses.get(within), sums[within]

    def record(self, ids: Ids, terminated: Bools, truncated: Bools) -> None:
        """Record where episodes end, and give new steps the largest priority."""
        super().record(ids, terminated, truncated)
        for new_ids in np.moveaxis(ids[..., 0], 1, 0):
            replica = np.flatnonzero(new_ids >= 0)
            slots = new_ids[replica] % self._layout.capacity
            self._powers[:, replica, slots] = 0.0
            largest = self._powers.max(2)[:, replica]
            self._powers[:, replica, slots] = np.where(largest > 0.0, largest, 1.0)

    def clear(self) -> None:
        """Drop every step."""
        with self.lock.held("add"):
            super().clear()
            self._powers[:], self._bins = 0.0, None

    def update(self, ids: npt.ArrayLike, values: npt.ArrayLike, are_errors: bool) -> int:
        """Take TD errors."""
        count = super().update(ids, values, are_errors)
        shape, finite = (len(self._generators), -1), np.finfo(np.float64)
        rows, errors = np.asarray(ids, np.int64).reshape(shape), np.asarray(values, np.float64).reshape(shape)
        with self.lock.held():
            where = np.nonzero(self.is_stored(rows))
            priorities = np.abs(errors[where]) + self._sampler.epsilon
            for k, exponent in enumerate(self._exponents):
                power = np.clip(priorities**exponent, finite.tiny, finite.max / self._layout.capacity)
                self._powers[k, where[0], rows[where] % self._layout.capacity] = power
        return count

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the powers, and where episodes ended."""
        return super().arrays() | {f"custom{r}.powers": self._powers[:, r].copy() for r in range(len(self._generators))}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Restore the state that `arrays` and `generators` returned.

        Raises:
            SnapshotError: The sampler had other exponents.
        """
        powers = np.stack([arrays[f"custom{r}.powers"] for r in range(len(self._generators))], axis=1)
        if powers.shape != self._powers.shape:
            raise SnapshotError(
                f"`between` and `within` of {self._sampler} must be those it was saved with, of which "
                f"{len(powers)} different ones are not 0"
            )
        self._powers = powers
        super().restore(arrays, generators)


class MatchedEndsEngine(_BinEngine):
    """Draws evenly, and a share of the rows from the bins of terminated episodes' last steps."""

    def distribution(self, stored: StoredBins, values: list[float]) -> tuple[Floats, None, Floats]:
        """Return (1 − s)·n_b/N + s·[b holds ends]·n_b/L for bins of n_b steps."""
        numbers, replicas = self._stored.numbers, len(self._generators)
        sums = stored.counts.astype(np.float64)
        counts = sums.reshape(replicas, numbers.groups, -1)
        ends = np.zeros_like(counts)
        last_steps = int(numbers.group(1, np.zeros(1, np.int64))[0])
        ends[:, last_steps] = counts[:, last_steps]
        even, ends = (
            each.reshape(replicas, -1) / np.maximum(each.sum((1, 2)), 1.0)[:, None] for each in (counts, ends)
        )
        share = np.where(ends.any(1), values, 0.0)[:, None]
        return (1.0 - share) * even + share * ends, None, sums


def _choose(masses: Floats, uniform: Floats) -> Ids:
    """Return the indices where cumulative masses exceed these fractions of the total; none of them has mass 0."""
    running = masses.cumsum()
    targets = np.minimum(uniform * running[-1], np.nextafter(running[-1], 0.0))
    return np.asarray(np.searchsorted(running, targets, side="right"), np.int64)
