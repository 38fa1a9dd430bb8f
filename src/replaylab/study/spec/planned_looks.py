"""Looks that a study plans: with which numbers of seeds it is reported, and at which level each time."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SIGNIFICANCE = 0.05
"""The error of a whole study: of its only look, or of all that were planned together."""


class PlannedLooks(BaseModel):
    """The table ``[looks]``: for those who add seeds until they are satisfied.

    Declared before the first look; `seeds` of the study is then raised from one number to the next, and each report is
    judged at its own level. The levels add up to 5 %, so false alarms do, too. A look whose level is below every
    p-value that a permutation test gives with any number of seeds is refused; with N seeds none is below 2 / 2^N.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: Annotated[tuple[Annotated[int, Field(ge=1, strict=True)], ...], Field(min_length=1, max_length=100)]
    """How many seeds there are at each look, increasing; the last is the most that will ever be run."""

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
                    f"must have looks of a level above {least:.1g}, the smallest p-value of a permutation test, but "
                    f"that with {count} seeds has {level:.1g}; leave it out, or plan it with more seeds{other}"
                )
        return self

    @property
    def levels(self) -> dict[int, float]:
        """The level of each look, by its number of seeds."""
        from replaylab.statistics.alpha_spending import look_levels  # SciPy, which most study files do not need

        shares = [count / self.seeds[-1] for count in self.seeds]
        return dict(zip(self.seeds, look_levels(shares, self.spending, SIGNIFICANCE).tolist(), strict=True))

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.seeds))} seeds"
