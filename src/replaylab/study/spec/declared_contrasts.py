"""Contrasts and scores as a study file declares them; `replaylab.study.spec.contrasts` resolves them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from replaylab.statistics import normalised_score
from replaylab.study.spec.display_text import Answers, Factors, Line, Prose, Table, Title

RETURN = "eval/mean_reward"
"""The metric that is compared by default: the mean return of one greedy evaluation."""

_Number = Annotated[float, Field(strict=True)]

Selector = dict[str, Factors]


class Score(Table):
    """x becomes (x - low) / (high - low), so that environments can be averaged."""

    low: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    """Becomes 0; the return of random actions, for instance."""

    high: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    """Becomes 1."""

    metric: Line = RETURN
    """The metric that is scored."""

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values on the scale of the score."""
        return normalised_score(values, self.low, self.high)

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if not self.low < self.high:
            raise ValueError("must have `low` below `high`")
        return self


class PublishedStatement(Table):
    """A published statement about a contrast, which the contrast's verdict supports or contradicts."""

    says: Annotated[Line, Field(min_length=1, max_length=200)]
    """The statement with its values, as a sentence without a full stop."""

    verdict: Annotated[tuple[Literal["higher", "lower", "equivalent"], ...], Field(min_length=1)]
    """The verdicts on the contrast that agree with it."""

    source: Annotated[Line, Field(min_length=1, max_length=200)]
    """Authors and year, and the place in the publication."""

    def outcome(self, verdict: str) -> Literal["reproduced", "not reproduced", "contested"]:
        """Return whether a contrast's verdict agrees with the statement; "contested" if it decides nothing."""
        if verdict in ("inconclusive", "not interpretable"):
            return "contested"
        return "reproduced" if verdict in self.verdict else "not reproduced"


class DeclaredContrast(Table):
    """One contrast, as declared before the data are collected."""

    name: Annotated[Line, Field(min_length=1, max_length=80)]
    question: Prose = ""
    sides: tuple[Title, Title] | None = None
    """Names of its two sides in reports, the one counted up first; None: generated."""

    answers: Answers | None = None
    """Its verdict in words."""

    more: Selector = {}
    """Cells whose mean is counted up."""

    less: Selector = {}
    """Cells whose mean is counted down."""

    weights: dict[str, Annotated[float, Field(allow_inf_nan=False, strict=True)]] = {}
    """Weights of strategies, by name, that add up to 0; instead of more and less."""

    within: Selector = {}
    """Cells that the weights apply to; empty: all."""

    of: tuple[str, str] | None = None
    """Two contrasts, named earlier in the file: the first minus the second, seed by seed. In place of more and less."""

    metric: Line | None = None
    """Any recorded metric; None: the return."""

    measure: Literal["area", "final"] | None = None
    """Measure of a run: the average over training (also None), or the mean of the last tenth."""

    log: Annotated[bool, Field(strict=True)] = False
    """Whether natural logarithms of the metric are compared, so that a difference of 0.1 is a ratio of 1.105."""

    better: Literal["higher", "lower"] | None = None
    """The better verdict; None: higher for the return, neither for other metrics."""

    equivalence: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)] | None = None
    """Differences up to this size do not matter; in the unit of the contrast."""

    primary: Annotated[bool, Field(strict=True)] = False
    """Whether it is the primary question of the study, which is tested without correction."""

    each_environment: Annotated[bool, Field(strict=True)] = False
    """Whether each of its environments is a further contrast, named "NAME, ENVIRONMENT"; never primary. A check of one
    environment guards the contrasts there, and those over several environments."""

    check: tuple[_Number, _Number] | None = None
    """Bounds of a manipulation check; its interval must lie between them, and either may be infinite."""

    guards: tuple[str, ...] | None = None
    """Contrasts whose verdicts a manipulation check guards; None: all."""

    published: PublishedStatement | None = None
    """A published statement that the contrast tests."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.of is None and bool(self.weights) == bool(self.more and self.less):
            raise ValueError("must hold `more` and `less`, or `weights`, or `of`")
        keys = ("more", "less", "weights", "within", "metric", "measure", "log", "better")
        direct = [key for key in keys if getattr(self, key)]
        if self.of is not None and direct:
            raise ValueError(
                f"must not have `{direct[0]}` together with `of`, which takes it from the contrasts it names"
            )
        if self.weights and (self.more or self.less):
            raise ValueError("must not have `weights` together with `more` or `less`; remove one of them")
        if self.within and not self.weights:
            raise ValueError("must not have `within` without `weights`, whose cells it chooses")
        if abs(sum(self.weights.values())) > 1e-9:
            raise ValueError(f"must have `weights` that add up to 0, but they add up to {sum(self.weights.values()):g}")
        self._check_role()
        return self

    def _check_role(self) -> None:
        if self.check is not None:
            for key in ("primary", "equivalence", "published"):
                if getattr(self, key):
                    raise ValueError(f"must not have `check` together with `{key}`; remove one of them")
        if self.check is not None and not self.check[0] < self.check[1]:
            raise ValueError(f"must have a `check` whose first bound is below its second, but got {list(self.check)}")
        if self.guards is not None and self.check is None:
            raise ValueError("must not have `guards` without `check`")
