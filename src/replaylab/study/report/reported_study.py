"""What a report asks of a study: its file, its folder, and what is in there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from replaylab.study.plan.populations import Population
from replaylab.study.spec.study_file import Spec

if TYPE_CHECKING:
    import duckdb


class ReportedStudy(Protocol):
    """A study with results, such as `replaylab.study.Study`."""

    @property
    def spec(self) -> Spec:
        """The study file, validated."""

    @property
    def folder(self) -> Path:
        """Where the results are."""

    @property
    def populations(self) -> Sequence[Population]:
        """All populations that the study file asks for."""

    @property
    def present(self) -> Sequence[Population]:
        """Those with results."""

    def file_of(self, population: Population) -> Path:
        """Where a population's rows are, or will be."""

    def record(self, name: str) -> dict[str, Any]:
        """One of the folder's JSON records; empty where there is none."""

    def results(self) -> duckdb.DuckDBPyRelation:
        """The rows of all populations that are there."""

    def answers(self) -> list[str]:
        """What came out, in sentences."""
