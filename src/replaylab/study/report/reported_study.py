"""The interface of a study that a report needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from replaylab.study.plan import Chunk
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb


class ReportedStudy(Protocol):
    """A study with results, such as `replaylab.study.Study`."""

    @property
    def spec(self) -> Spec:
        """The study file, validated."""

    @property
    def folder(self) -> Path:
        """Folder of the results."""

    @property
    def chunks(self) -> Sequence[Chunk]:
        """All chunks that the study file asks for."""

    @property
    def present(self) -> Sequence[Chunk]:
        """Those with results."""

    def file_of(self, chunk: Chunk) -> Path:
        """Path of a chunk's rows, which need not exist yet."""

    def versions(self) -> Sequence[Mapping[str, str]]:
        """The library versions that the runs were made with, one or more sets."""

    def record(self, name: str) -> dict[str, Any]:
        """One of the folder's JSON records; empty if it is missing."""

    def results(self) -> duckdb.DuckDBPyRelation:
        """The rows of all stored chunks."""

    def answers(self) -> list[str]:
        """The answer, then the comparisons, in sentences."""
