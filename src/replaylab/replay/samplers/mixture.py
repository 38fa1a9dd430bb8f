"""Batches from several samplers: in fixed shares, or each new step first and the rest from another sampler."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from replaylab import _core
from replaylab.arguments import POSITIVE, InvalidArgument, check, optional, tuple_of
from replaylab.errors import ConfigError
from replaylab.replay.data.schedules import Schedule
from replaylab.replay.samplers.online import Queue
from replaylab.replay.samplers.sampler import FeedbackKind, Sampler


def _of_parts(name: str, join: Callable[[Iterable[bool]], bool]) -> Any:
    """Return a property that is true where it is of any part, or of all of them."""
    return property(lambda mixture: join(getattr(part, name) for part in mixture.parts))


class OfParts:
    """The members of a `Sampler` that follow from the samplers that it is made of.

    Attributes:
        parts: These samplers.
    """

    parts: tuple[Sampler, ...]
    wants_feedback = _of_parts("wants_feedback", any)
    keeps_priorities = _of_parts("keeps_priorities", any)
    distribution_needs_progress = _of_parts("distribution_needs_progress", any)
    needs_order = _of_parts("needs_order", any)
    needs_episodes = _of_parts("needs_episodes", any)
    draws_sequences = _of_parts("draws_sequences", all)
    allows_removal = _of_parts("allows_removal", all)

    @property
    def feedback_kind(self) -> FeedbackKind:
        """The kind of feedback of the parts that want any.

        Raises:
            ConfigError: The parts want different kinds.
        """
        kinds = {part.feedback_kind for part in self.parts if part.wants_feedback}
        if len(kinds) > 1:
            names = ", ".join(sorted(kinds))
            raise ConfigError(
                f"the parts of {self} want different feedback ({names}), but all get the same; leave one kind out"
            )
        return kinds.pop() if kinds else "td_error"

    @property
    def end_fields(self) -> tuple[str, ...]:
        """Those of the part that accepts the fewest."""
        return min((part.end_fields for part in self.parts if part.end_fields), key=len, default=())

    @property
    def clock_fields(self) -> tuple[str, ...]:
        """Those of all parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.clock_fields))

    @property
    def schedules(self) -> tuple[float | Schedule, ...]:
        """The scheduled number of each part."""
        return tuple(part.scheduled for part in self.parts)


@dataclass(frozen=True)
class Mixture(OfParts, Sampler):  # type: ignore[override]
    """Fixed shares of every batch from several samplers over the same buffer.

    Part j gives Bⱼ of the B rows, its share rounded so that all rows are given. Sampling probability of one row:
    ``P(i) = Σⱼ (Bⱼ/B)·Pⱼ(i)``, which is also every row's ``probability``; the rows' ``weight`` is 1. Every part gets
    the learner's feedback. Source: Ball et al. 2023 (equal shares).

    Attributes:
        parts: At least two samplers with an exact sampling distribution, none of them a mixture or written in Python.
        shares: Positive share of each part; they need not sum to 1. None: equal shares. Default: None.

    Raises:
        ConfigError: The parts want different feedback, as `ReLo` and `Prioritized` do.
    """

    parts: tuple[Sampler, ...]
    shares: tuple[float, ...] | None = None

    distribution_needs_batch_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rule = "two or more samplers of this library with a closed form, none of them a Mixture or written in Python"
        check(self, parts=tuple_of(_part, rule, 2))
        count, rule = len(self.parts), "one positive number for each part"
        check(self, shares=optional(tuple_of(POSITIVE, rule, count, count)))
        if self.shares is not None and not math.isfinite(sum(self.shares)):
            raise ConfigError(f"`shares` of Mixture must be numbers whose sum is finite, but got {self.shares}")
        _ = self.feedback_kind  # which raises where the parts want different ones

    def rows(self, batch_size: int) -> int:
        """Return the number of rows of all parts."""
        part_rows = split_rows(self._parts_shares(), batch_size)
        return sum(part.rows(rows) for part, rows in zip(self.parts, part_rows, strict=True) if rows)

    def core_config(self) -> _core.SamplerConfig:
        """Return the mixture in the form of the compiled core."""
        options = {f"share{j}": share for j, share in enumerate(self._parts_shares())}
        return _core.SamplerConfig("mixture", options, [part.core_config() for part in self.parts])

    def _parts_shares(self) -> tuple[float, ...]:
        shares = self.shares or (1.0,) * len(self.parts)
        return tuple(share / sum(shares) for share in shares)


@dataclass(frozen=True)
class FreshFirst(OfParts, Sampler):  # type: ignore[override]
    """Each new step once, as soon as a batch has room for it, oldest first; the other rows by another sampler.

    Of B rows, F = min(B, W) are the oldest of the W stored steps that were not drawn yet. Sampling probability of one
    row: ``P(i) = [i is one of the F]/B + (B − F)/B·P_sampler(i)``, which is also every row's ``probability``; the
    rows' ``weight`` is 1. A step that is overwritten while it waits is lost. `sampler` gets the learner's feedback.
    Source: Hafner et al. 2023 (DreamerV3, whose queue holds sequences; here it holds steps, and `Sequence` is refused).

    Attributes:
        sampler: Gives the other rows: a sampler with an exact sampling distribution, not a mixture or written in
            Python, that gives as many rows as it is asked for.
    """

    sampler: Sampler

    distribution_needs_batch_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, sampler=_part)
        if self.sampler.rows(2) != 2:
            raise ConfigError(
                f"`sampler` of FreshFirst must give as many rows as it is asked for, but got {self.sampler}; use "
                "another, such as Uniform()"
            )

    @property
    def parts(self) -> tuple[Sampler, ...]:  # type: ignore[override]
        """The queue of new steps, and the sampler."""
        return (Queue(), self.sampler)

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("fresh_first", {}, [part.core_config() for part in self.parts])


def split_rows(shares: Sequence[float], batch_size: int) -> list[int]:
    """Return the number of rows of each share, rounded so that they sum to `batch_size`, as in the core."""
    counts: list[int] = []
    exact = 0.0
    for share in shares:
        exact += share * batch_size
        counts.append(int(exact + 0.5) - sum(counts))
    return counts


def _part(sampler: object) -> Sampler:
    """A sampler that can be part of a mixture."""
    if (
        not isinstance(sampler, Sampler)
        or isinstance(sampler, Mixture | FreshFirst)
        or not (sampler.in_core and sampler.has_closed_form)
    ):
        raise InvalidArgument("a sampler of this library with an exact sampling distribution")
    return sampler
