"""Interim analyses of a study: the numbers of seeds it is reported with, and the level of each report."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from replaylab.study.spec.display_text import Table

SIGNIFICANCE = 0.05
"""The error of a whole study: of its only analysis, or of all interim analyses together."""


class InterimAnalyses(Table):
    """The table ``[interim]``: interim analyses, for studies that add seeds later.

    Declare it before the first report. Raise `seeds` of the study from one number to the next; each report is judged at
    its own level. The levels add up to 5 %, and so does the probability of a false alarm. An analysis whose level is
    below every p-value of a permutation test is an error; with N seeds no p-value is below 2 / 2^N.
    """

    seeds: Annotated[tuple[Annotated[int, Field(ge=1, strict=True)], ...], Field(min_length=1, max_length=100)]
    """Number of seeds of each analysis, increasing; the last is the most that will ever be run."""

    spending: Literal["obrien_fleming", "pocock"] = "obrien_fleming"
    """How the error is spent: little at first ("obrien_fleming"), or about equally ("pocock")."""

    @field_validator("seeds")
    @classmethod
    def _increasing(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(later <= earlier for earlier, later in pairwise(value)):
            raise ValueError("must be increasing numbers of seeds")
        return value

    @model_validator(mode="after")
    def _within_reach(self) -> Self:
        from replaylab.statistics.permutation import PERMUTATIONS

        least = 1.0 / (PERMUTATIONS + 1)
        for count, level in self.levels.items():
            if level <= least:
                other = ', or write spending = "pocock"' if self.spending == "obrien_fleming" else ""
                raise ValueError(
                    f"must have analyses of a level above {least:.1g}, the smallest p-value of a permutation test, but "
                    f"that with {count} seeds has {level:.1g}; leave it out, or plan it with more seeds{other}"
                )
        return self

    @property
    def levels(self) -> dict[int, float]:
        """The level of each analysis, by its number of seeds."""
        from replaylab.statistics.alpha_spending import interim_levels  # SciPy, which most study files do not need

        shares = [count / self.seeds[-1] for count in self.seeds]
        return dict(zip(self.seeds, interim_levels(shares, self.spending, SIGNIFICANCE).tolist(), strict=True))

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.seeds))} seeds"
