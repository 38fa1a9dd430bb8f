"""The rows of a metric as a table, and the error about a metric that no run recorded."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from replaylab.extras import missing_extra
from replaylab.learners.metrics.registry import check_name

if TYPE_CHECKING:
    import duckdb
    import pandas


def frame(rows: duckdb.DuckDBPyRelation, metric: str | None) -> pandas.DataFrame:
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
