"""Opening a folder of results, those of a run or the published rows of a finished study, and reading a metric."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from replaylab.errors import SpecError
from replaylab.extras import missing_extra
from replaylab.learners.metrics import check_name
from replaylab.study.results import records
from replaylab.study.results.folder import StudyFolder, is_published
from replaylab.study.spec.errors import first_fault
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb
    import pandas

    from replaylab.study.results.published_rows import PublishedRows


def spec_in(folder: Path) -> Spec:
    """Return the study whose results a folder holds.

    Raises:
        SpecError: it holds none.
        StorageError: its published rows are damaged.
    """
    if is_published(folder):
        from replaylab.study.results.published_rows import published_spec

        return published_spec(folder)
    file = folder / "study.json"
    try:
        return Spec.from_record(json.dumps(records.opened(file.read_bytes())))
    except FileNotFoundError as error:
        raise SpecError(
            f"{folder}: holds no study (there is no study.json). Give the folder a "
            f"`replaylab study run` wrote, such as results/quick."
        ) from error
    except OSError as error:
        raise SpecError(f"{file}: cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise SpecError(
            f"{file}: is damaged, or of another version of replaylab: {first_fault(error)}. "
            f"Give the study's file to `replaylab study run` again, after moving study.json away."
        ) from error


Results: TypeAlias = "StudyFolder | PublishedRows"
"""A reader of a study's results."""


def results_in(folder: Path, spec: Spec) -> Results:
    """Return what a study's results in a folder are read from."""
    if not is_published(folder):
        return StudyFolder(spec, folder)
    from replaylab.study.results.published_rows import PublishedRows

    return PublishedRows(spec, folder)


def rows_in(folder: Path, spec: Spec) -> duckdb.DuckDBPyRelation:
    """Return all rows of a study's results in a folder.

    Raises:
        SpecError: the folder holds no results of the study.
        StorageError: a file is damaged.
    """
    results = results_in(folder, spec)
    if not results.present:
        raise SpecError(f"{folder}: holds no results of these settings yet. Run the study first.")
    return results.rows()


def metric_frame(rows: duckdb.DuckDBPyRelation, metric: str | None) -> pandas.DataFrame:
    """Return all rows, or those of a metric, as a pandas DataFrame.

    Raises:
        ConfigError: the metric was not recorded, and is not one that the library may record.
        MissingExtraError: pandas is not installed.
    """
    if find_spec("pandas") is None:
        instead = ". Or take results().arrow() or results().fetchnumpy(), which need nothing more."
        raise missing_extra("`frame`", "pandas", "pandas", instead)
    if metric is None:
        return rows.df()
    from duckdb import ColumnExpression, ConstantExpression

    table = rows.filter(ColumnExpression("metric") == ConstantExpression(metric)).df()
    if table.empty:
        check_recorded(rows, metric)
    return table


def check_recorded(rows: duckdb.DuckDBPyRelation, metric: str) -> None:
    """Raise `ConfigError` if a metric without rows is not one of the library's."""
    check_name(metric, (name for (name,) in rows.select("metric").distinct().fetchall()))
