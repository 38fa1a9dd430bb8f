"""A placebo that draws steps as near to the ends of episodes, and as old, as those that a recorded run drew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError
from replaylab.replay import Seed
from replaylab.replay.samplers.engine import Bools, Core, DrawEngine, Floats, Layout, RecordingEngine
from replaylab.research.episode_bins import ID_BITS, StoredBins, StoredSteps, flat_ends, id_of
from replaylab.research.tape import Tape, TapeEngine
from replaylab.research.tape_file import Ids


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


class ByStepsToEndEngine(RecordingEngine[Tape], TapeEngine):
    """Draws by the bins of a tape's rows, and remembers where episodes ended.

    Raises:
        ConfigError: The buffer has several environments for each replica, or the tape no ends of episodes.
    """

    def __init__(self, core: Core, layout: Layout, seed: Seed, sampler: Tape) -> None:
        super().__init__(core, layout, seed, sampler)
        if (layout.num_envs or 1) > 1:
            raise ConfigError(
                f"{type(sampler).__name__} needs a buffer of one environment, but got num_envs={layout.num_envs}; make "
                "the environments replicas"
            )
        self._ends = self._recorded_ends()
        self._stored = StoredSteps(layout.capacity, [np.empty(0, np.int64)] * len(self._generators))
        self._bins: StoredBins | None = None  # until the next step is stored

    @property
    def nbytes(self) -> int:
        """Bytes of the stored steps' keys, when all are of finished episodes."""
        return 8 * self._layout.capacity * len(self._generators)

    def record(self, ids: Ids, terminated: Bools, truncated: Bools) -> None:
        """Record where episodes end."""
        self._bins = None
        for r, t, _ in np.argwhere((terminated | truncated) & (ids >= 0)):
            self._stored.end(int(r), int(ids[r, t, 0]), bool(terminated[r, t, 0]))

    def record_ends(self, ended: Bools) -> None:
        """Record that episodes were truncated."""
        for r, (ends, next_id) in enumerate(zip(ended[:, 0], self._core.counts()[1], strict=True)):
            if ends and next_id > self._stored.open(r):
                self._stored.end(r, next_id - 1, terminated=False)
                self._bins = None

    def choose(self, recorded: Ids, newest: Ids) -> tuple[Ids, Floats]:
        """Return a step of the bin of each recorded one, (R, B), and its probability."""
        replicas, rows = recorded.shape
        keys, row, times = np.unique(
            (np.arange(replicas)[:, None] << ID_BITS) + recorded, return_inverse=True, return_counts=True
        )
        if self._bins is None:
            sizes, next_ids = map(np.asarray, self._core.counts())
            self._bins = self._stored.bins(next_ids - sizes, next_ids - 1)
        stored = self._bins
        asked = self._stored.numbers.of(self._ends, keys >> ID_BITS, id_of(keys), newest)
        bins = stored.nearest(asked)
        far = self._stored.numbers.far(asked, bins)
        np.add.at(self._moved, keys[far] >> ID_BITS, times[far])
        counts = stored.counts[bins]
        replica = np.searchsorted(keys >> ID_BITS, np.arange(replicas + 1))
        ids = stored.ids(stored.starts[bins] + _offsets(self._generators, replica, bins, counts))
        probabilities = np.bincount(bins, times)[bins] / counts / rows
        return ids[row].reshape(recorded.shape), probabilities[row].reshape(recorded.shape)

    def _recorded_ends(self) -> Ids:
        """Return the ends of the recorded episodes, of each replica those of its origin."""
        ends = self._tape.ends()
        return flat_ends([ends[origin] for origin in self._origins])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return how far the tape is, where each replica's draws come from, and where its episodes ended."""
        ends = {f"custom{r}.ends": ended for r, ended in enumerate(self._stored.ends)}
        return super().arrays() | ends | {f"custom{r}.moved": np.array([n]) for r, n in enumerate(self._moved)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        ends, moved = ([arrays[f"custom{r}.{name}"] for r in range(len(self._origins))] for name in ("ends", "moved"))
        self._stored, self._bins = StoredSteps(self._layout.capacity, ends), None
        self._moved = np.concatenate(moved)
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
