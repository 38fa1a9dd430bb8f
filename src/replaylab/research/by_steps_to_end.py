"""A placebo that draws steps as near to the ends of episodes, and as old, as those that a recorded run drew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab.episode_ends import ENDS
from replaylab.replay import Seed
from replaylab.replay.samplers.engine import Core, DrawEngine, Floats, Layout
from replaylab.research.episode_bins import ID_BITS, EpisodeBinsEngine, flat_ends, id_of
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


class ByStepsToEndEngine(EpisodeBinsEngine[Tape], TapeEngine):
    """Draws by the bins of a tape's rows, and remembers where episodes ended.

    Raises:
        ConfigError: The buffer has several environments for each replica, or the tape no ends of episodes.
    """

    def __init__(self, core: Core, layout: Layout, seed: Seed, sampler: Tape) -> None:
        super().__init__(core, layout, seed, sampler)
        self._ends = self._recorded_ends()

    def choose(self, recorded: Ids, newest: Ids) -> tuple[Ids, Floats]:
        """Return a step of the bin of each recorded one, (R, B), and its probability."""
        replicas, rows = recorded.shape
        keys, row, times = np.unique(
            (np.arange(replicas)[:, None] << ID_BITS) + recorded, return_inverse=True, return_counts=True
        )
        stored = self.stored_bins()
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
        return super().arrays() | {f"custom{r}.moved": np.array([n]) for r, n in enumerate(self._moved)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        self._moved = np.concatenate([arrays[f"custom{r}.moved"] for r in range(len(self._origins))])
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
