"""The part of a study that has results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import TYPE_CHECKING

from replaylab.number_format import counted
from replaylab.study.plan import runs_of
from replaylab.study.spec.contrasts import Cell, resolve_contrasts
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy


@dataclass(frozen=True)
class WhatRan:
    """The cells of a study that have results, in the order of its file, and how many runs."""

    spec: Spec
    cells: Sequence[Cell]
    runs: int

    @property
    def environments(self) -> list[str]:
        """Those that any cell has."""
        return [e for e in self.spec.environments if any(e == cell.environment for cell in self.cells)]

    @property
    def learners(self) -> list[str]:
        """Those that any cell has."""
        return [name for name in self.spec.learners if any(name == cell.learner for cell in self.cells)]

    @property
    def strategies(self) -> list[str]:
        """Those that any cell has."""
        return [s for s in self.spec.strategies if any(s == cell.strategy for cell in self.cells)]

    @property
    def complete(self) -> bool:
        """Whether every run of the study is stored."""
        return self.runs == self.spec.runs

    @property
    def counted_runs(self) -> str:
        """Number of runs in words; for an incomplete study also the planned number."""
        planned = counted(self.spec.runs, "run")
        return planned if self.complete else f"{self.runs:,} of {planned}"

    @property
    def counted_seeds(self) -> str:
        """Number of seeds in words; for an incomplete study the largest."""
        return ("" if self.complete else "up to ") + counted(len(self.spec.seeds), "seed")

    def with_baseline(self) -> dict[tuple[str, ...], list[Cell]]:
        """Return groups of strategies that ran beside the baseline, each with the baseline's cells."""
        groups: dict[tuple[str, ...], list[Cell]] = {}
        for base in self.cells:
            others = tuple(c.strategy for c in self.cells if c[:2] == base[:2] and c != base)
            if base.strategy == self.spec.baseline and others:
                groups.setdefault(others, []).append(base)
        return groups

    def without_baseline(self) -> list[Cell]:
        """Return the cells that nothing compares: the baseline does not run there, and no contrast asks for them."""
        asked = {cell for contrast in resolve_contrasts(self.spec) for cell in contrast.cells}
        based = {(e, learner) for e, learner, s in self.spec.cells if s == self.spec.baseline}
        return [cell for cell in self.cells if cell[:2] not in based and cell not in asked]


def what_ran(study: ReportedStudy) -> WhatRan:
    """Return what has results."""
    spec, present = study.spec, study.present
    with_results = {Cell(*p.key) for p in present}
    every = starmap(Cell, product(spec.environments, spec.learners, spec.strategies))
    return WhatRan(spec, [cell for cell in every if cell in with_results], runs_of(present))
