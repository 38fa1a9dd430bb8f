"""Samplers: which stored steps a batch is made of, with what exact probability.

A sampler is a small frozen configuration; the state it needs lives in the buffer. N is the number of stored
steps, B the batch size asked for, δ a TD error. Those that go by age are in `age_samplers`, dials in
`dial_samplers`, those that learn from feedback in `priority_samplers`, your own in `custom`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from replaylab import _core
from replaylab.arguments import POSITIVE, Unfit, check, flag, one_of, optional, tuple_of, whole
from replaylab.errors import ConfigError
from replaylab.replay.data.schedules import Schedule

COUNT = whole(most=2**53)
"""Counts go to the core as float64, which holds them exactly up to there."""

FeedbackKind = Literal["td_error", "reducible_loss"]
"""What a learner is to give to `update_priorities`: TD errors δ, or a row's loss under the online network less that
under the target network."""


class Sampler(ABC):
    """What to draw; give one to `ReplayBuffer(sampler=...)`.

    Attributes:
        wants_feedback: Whether `update_priorities` changes what is drawn.
        feedback_kind: What it wants to be given: "td_error", or "reducible_loss", L_online − L_target.
        law_needs_batch_size: Whether `probabilities` depends on the batch size.
        law_needs_progress: Whether it depends on the scheduled number.
        needs_order: Whether it goes by the steps' order or age, which a `Reservoir` does not keep.
        needs_episodes: Whether it goes by episodes, which ``terminated`` and ``truncated`` then end.
        no_law: Why `probabilities` cannot state the law of one row; "" where it can.
        in_core: Whether the compiled core draws; if not, the sampler cannot be part of a `Mixture`.
        draws_sequences: Whether `Sequence` can be made of what it draws.
    """

    wants_feedback: ClassVar[bool] = False
    feedback_kind: ClassVar[FeedbackKind] = "td_error"
    law_needs_batch_size: ClassVar[bool] = False
    law_needs_progress: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False
    needs_episodes: ClassVar[bool] = False
    no_law: ClassVar[str] = ""
    in_core: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = True

    @property
    def has_law(self) -> bool:
        """Whether `ReplayBuffer.probabilities` states the exact law of one row."""
        return not self.no_law

    @property
    def scheduled(self) -> float | Schedule:
        """The number that may change over a run; if it does, `sample` needs ``progress``."""
        return 0.0

    def rows(self, batch_size: int) -> int:
        """Return how many rows a batch has when `batch_size` were asked for."""
        return batch_size

    @abstractmethod
    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""


@dataclass(frozen=True)
class Online(Sampler):
    """The newest step alone: learning without replay. A batch has one row, whatever B is.

    Law: P(newest) = 1. Source: none, it is what learning without replay does.
    """

    needs_order: ClassVar[bool] = True

    def rows(self, batch_size: int) -> int:  # noqa: ARG002
        """Return 1."""
        return 1

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("newest")


@dataclass(frozen=True)
class SlidingWindow(Sampler):
    """The newest B steps, newest first; sampling while fewer are stored is an error.

    With `Sequence`: the newest B sequences. Law: P(i) = 1/B for the newest B, else 0. Source: none, the usual window
    of a stream.
    """

    law_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("window")


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every stored step alike.

    Law: P(i) = 1/N. Source: Lin 1992; Mnih et al. 2015.

    Attributes:
        replace: Whether a step may come twice in a batch. If not, a batch needs B ≤ N, and its rows come in random
            order; with `Sequence` no sequence comes twice, all of N stored ones alike, whatever their length (otherwise
            a sequence has the chance of its steps together). Default: True.
    """

    replace: bool = True

    def __post_init__(self) -> None:
        check(self, replace=flag)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("uniform" if self.replace else "distinct")


@dataclass(frozen=True)
class Combined(Sampler):
    """Uniform draws and always the newest step, as the batch's last row.

    Law of one row: ``P(i) = (U/N + [i is newest]) / (U + 1)`` with U uniform draws; U = B for mode "plus" (B + 1
    rows), U = B − 1 for mode "replace" (B rows). Source: Zhang & Sutton 2017.

    Attributes:
        mode: "plus" or "replace". Default: "plus".
    """

    mode: Literal["plus", "replace"] = "plus"

    law_needs_batch_size: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, mode=one_of("plus", "replace"))

    def rows(self, batch_size: int) -> int:
        """Return B, and one more for mode "plus"."""
        return batch_size + (self.mode == "plus")

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig(f"combined_{self.mode}")


@dataclass(frozen=True)
class ShuffledEpochs(Sampler):
    """Every step once an epoch, in random order: no repetition until all have come.

    An epoch is made of the steps stored when it begins; those overwritten meanwhile are passed over, those
    stored meanwhile wait for the next. With `Sequence` it is made of sequences, each passed over once the step that was
    its newest is overwritten. Law of one row, with M steps of the epoch still due:
    ``P(i) = (min(B, M)·[i is due]/M + max(B − M, 0)/N) / B``. Source: Fujita 2025.
    """

    law_needs_batch_size: ClassVar[bool] = True

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("epochs")


@dataclass(frozen=True)
class Mixture(Sampler):
    """Fixed shares of every batch from several samplers over the same buffer.

    Part j gives Bⱼ of the B rows, its share rounded so that all rows are given. Law of one row:
    ``P(i) = Σⱼ (Bⱼ/B)·Pⱼ(i)``, which is also every row's ``probability``; the rows' ``weight`` is 1. Every part gets
    the learner's feedback. Source: Ball et al. 2023 (equal shares).

    Attributes:
        parts: At least two samplers with an exact law, none of them a mixture or written in Python.
        shares: Of each part, positive; None: equal shares. They need not sum to 1. Default: None.
    """

    parts: tuple[Sampler, ...]
    shares: tuple[float, ...] | None = None

    law_needs_batch_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rule = "two or more samplers of this library with an exact law, none of them a Mixture or written in Python"
        check(self, parts=tuple_of(_part, rule, 2))
        count, rule = len(self.parts), "one positive number for each part"
        check(self, shares=optional(tuple_of(POSITIVE, rule, count, count)))
        if self.shares is not None and not math.isfinite(sum(self.shares)):
            raise ConfigError(f"`shares` of Mixture must be numbers whose sum is finite, but got {self.shares}")

    @property
    def wants_feedback(self) -> bool:  # type: ignore[override]
        """Whether any part does."""
        return any(part.wants_feedback for part in self.parts)

    @property
    def feedback_kind(self) -> FeedbackKind:  # type: ignore[override]
        """That of the parts that want any.

        Raises:
            ConfigError: They want different ones, and all get the same.
        """
        kinds = {part.feedback_kind for part in self.parts if part.wants_feedback}
        if len(kinds) > 1:
            wanted = ", ".join(sorted(kinds))
            raise ConfigError(
                f"the parts of {self} want different feedback ({wanted}), but all get the same; leave one kind out"
            )
        return kinds.pop() if kinds else "td_error"

    @property
    def law_needs_progress(self) -> bool:  # type: ignore[override]
        """Whether any part's does."""
        return any(part.law_needs_progress for part in self.parts)

    @property
    def needs_order(self) -> bool:  # type: ignore[override]
        """Whether any part does."""
        return any(part.needs_order for part in self.parts)

    @property
    def draws_sequences(self) -> bool:  # type: ignore[override]
        """Whether all parts do."""
        return all(part.draws_sequences for part in self.parts)

    def rows(self, batch_size: int) -> int:
        """Return the rows of all parts."""
        asked = split_rows(self._parts_shares(), batch_size)
        return sum(part.rows(rows) for part, rows in zip(self.parts, asked, strict=True) if rows)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        options = {f"share{j}": share for j, share in enumerate(self._parts_shares())}
        return _core.SamplerConfig("mixture", options, [part.core_config() for part in self.parts])

    def _parts_shares(self) -> tuple[float, ...]:
        shares = self.shares or (1.0,) * len(self.parts)
        return tuple(share / sum(shares) for share in shares)


def split_rows(shares: Sequence[float], batch_size: int) -> list[int]:
    """Return each share's rows of a batch, rounded so that all rows are given; as the core splits a mixture."""
    asked: list[int] = []
    wanted = 0.0
    for share in shares:
        wanted += share * batch_size
        asked.append(int(wanted + 0.5) - sum(asked))
    return asked


def _part(sampler: object) -> Sampler:
    """What a mixture can have as its part."""
    if not isinstance(sampler, Sampler) or isinstance(sampler, Mixture) or not (sampler.in_core and sampler.has_law):
        raise Unfit("a sampler of this library with an exact law")
    return sampler
