"""Samplers of your own, in Python: what they see, and their base classes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import check, function
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay.data.arrays import on_cpu
from replaylab.replay.samplers.custom.records import Record
from replaylab.replay.samplers.sampler import Sampler

Ids = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]


class View:
    """What a `CustomSampler` sees of one replica: every array has one entry a stored step, oldest first.

    Attributes:
        ids: int64 (N,).
        ages: int64 (N,); the newest step has age 0.
        episodes: int64 (N,); steps of one environment's episode share a number, which grows.
        steps_in_episode: int64 (N,); 0 for an episode's first step.
        replay_counts: int64 (N,); how often each was drawn.
        feedback: float64 (N,); the last |TD error| or priority of each, NaN where none came yet.
        priorities: float64 (N,); `feedback`, or where none came yet the largest there is, 1 if there is none.
        replica: Which replica of the buffer it is, from 0.
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
        return np.unique(self.episodes * (places.max(initial=0) + 1) + places, return_inverse=True)[1]

    @property
    def replay_counts(self) -> Ids:
        """How often each was drawn."""
        return self._record.counts[self._slots]

    @property
    def feedback(self) -> Floats:
        """The last feedback for each, NaN where none came yet."""
        return self._record.feedback[self._slots]

    @property
    def priorities(self) -> Floats:
        """The last feedback for each, the largest where none came yet."""
        feedback = self.feedback
        known = feedback[~np.isnan(feedback)]
        return np.where(np.isnan(feedback), known.max() if known.size and known.max() > 0 else 1.0, feedback)


class CustomSampler(Sampler):
    """Base of samplers written in Python; derive a frozen dataclass from it.

    What it goes by is in the view; state of its own would be shared by all replicas, and no snapshot would hold it.

    Example:
        Steps that were seldom replayed, more often:

        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from replaylab import Field, ReplayBuffer
        >>> @dataclass(frozen=True)
        ... class Fresh(CustomSampler):
        ...     def law(self, view, batch_size):
        ...         wanted = 1.0 / (1.0 + view.replay_counts)
        ...         return wanted / wanted.sum()
        >>> buffer = ReplayBuffer(10, {"x": Field()}, sampler=Fresh(), seed=0)
        >>> ids = buffer.extend(x=np.arange(4.0))
        >>> buffer.sample(3).x.shape
        (3,)
    """

    law_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    in_core: ClassVar[bool] = False

    def law(self, view: View, batch_size: int) -> Floats:
        """Return the chance of each stored step to be one row of a batch, float64 (N,), summing to 1.

        A sampler that has no exact law says why in its class attribute `no_law` and defines `draw` instead; the
        ``probability`` of its rows is NaN.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `law`, or `draw` and the reason in `no_law`")

    def draw(self, view: View, batch_size: int, rng: np.random.Generator) -> Ids:
        """Return the ids of a batch, int64 (B,). By default B independent draws from `law`."""
        return rng.choice(view.ids, size=batch_size, p=self.law(view, batch_size))

    def weights(self, view: View, probabilities: Floats, progress: float | None) -> Floats:  # noqa: ARG002
        """Return the importance weights of rows drawn with these probabilities (B,), finite and ≥ 0. By default 1.

        With `Sequence` the probabilities are those of the sequences, each the chance of its steps together.
        """
        return np.ones(len(probabilities))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know: nothing, it only stores."""
        return _core.SamplerConfig("uniform")


class TopScores(CustomSampler):
    """Base of samplers that draw the B steps of the highest scores; derive from it, and define `scores`.

    Law: P(i) = 1/B for those B (of equal ones the older), else 0. A batch needs B ≤ N. With `Sequence`: the B sequences
    that hold the highest.
    """

    def scores(self, view: View) -> npt.ArrayLike:
        """Return the score of every stored step, (N,)."""
        raise NotImplementedError(f"{type(self).__name__} must define `scores`")

    def law(self, view: View, batch_size: int) -> Floats:
        """Return 1/B for the B highest scores."""
        chances, best = np.zeros(len(view)), self._best(view, batch_size)
        chances[best] = 1.0 / len(best)
        return chances

    def draw(self, view: View, batch_size: int, rng: np.random.Generator) -> Ids:  # noqa: ARG002
        """Return the ids with the highest scores, best first."""
        blocks = view.blocks
        there, what = (len(view), "steps") if blocks is None else (blocks.max(initial=-1) + 1, "sequences")
        if batch_size > there:
            raise EmptyBufferError(
                f"{type(self).__name__} gives `batch_size` different {what}, but batch_size={batch_size} and only "
                f"{there} {what} are stored; ask for fewer, or add more steps first"
            )
        return view.ids[self._best(view, batch_size)]

    def _best(self, view: View, batch_size: int) -> Ids:
        scores = np.asarray(on_cpu(self.scores(view)))
        if scores.shape != view.ids.shape or scores.dtype.kind not in "biuf" or np.isnan(scores).any():
            raise ConfigError(
                f"`score` of {type(self).__name__} must return one number for each of {len(view)} ids, none of them "
                f"NaN, but returned {scores}"
            )
        scores = scores.astype(np.float64)
        blocks = view.blocks
        if blocks is not None:  # of each only the step of its highest score
            order = np.argsort(-scores, kind="stable")
            return order[np.sort(np.unique(blocks[order], return_index=True)[1])][:batch_size]
        place = max(len(scores) - batch_size, 0)
        least = np.partition(scores, place)[place]
        above, level = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        return np.concatenate([above[np.argsort(-scores[above], kind="stable")], level])[:batch_size]


@dataclass(frozen=True)
class Oracle(TopScores):
    """The B steps a caller's function scores highest: for studies, e.g. those that lower the true error most.

    Law: P(i) = 1/B for those B (of equal ones the older), else 0. A batch needs B ≤ N. Source: the "oracle"
    of Schaul et al. 2016.

    Attributes:
        score: Takes ids int64 (N,), returns their scores (N,).
    """

    score: Callable[[Ids], npt.ArrayLike]

    def __post_init__(self) -> None:
        check(self, score=function("ids"))

    def scores(self, view: View) -> npt.ArrayLike:
        """Return what the function says of the stored ids."""
        return self.score(view.ids)
