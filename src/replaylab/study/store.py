"""The results on disk: one Parquet file per population, in long form.

Columns: see `SCHEMA`. Rows are sorted by seed, metric, step, and hold nothing of time or machine, so two runs
of the same study give equal rows. Each file's metadata carries the settings it came from and the library
versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from replaylab.study.files import whole_file
from replaylab.study.plan import Population

_METADATA_KEY = b"replaylab"
_LABEL = pa.dictionary(pa.int32(), pa.string())


def _column(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"meaning": meaning})


SCHEMA = pa.schema(
    [
        _column("environment", _LABEL, "Gymnasium id"),
        _column("learner", _LABEL, "name of the learner in the study file"),
        _column("strategy", _LABEL, "name of the replay strategy in the study file"),
        _column("seed", pa.int64(), "seed of the run; equal seeds pair across strategies"),
        _column("step", pa.int64(), "environment steps of that run so far; episodes where the budget is in episodes"),
        _column("metric", _LABEL, "what the value is, named as in Stable-Baselines3; ours under replay/"),
        _column("value", pa.float64(), "the value, in the metric's unit (returns: undiscounted reward)"),
    ]
)
"""Names, types and meanings of the columns; the same text lies in every file's schema."""


def write_population(
    path: Path, population: Population, columns: Mapping[str, NDArray[Any]], versions: Mapping[str, str]
) -> None:
    """Write a population's rows, wholly or not at all.

    Args:
        path: the file to make.
        population: whose rows these are.
        columns: seed int64, step int64, metric str, value float64; each of shape (rows,).
        versions: library versions, kept in the file's metadata.
    """
    metrics, codes = np.unique(np.asarray(columns["metric"], dtype=np.str_), return_inverse=True)
    order = np.lexsort((columns["step"], codes, columns["seed"]))
    metric = pa.DictionaryArray.from_arrays(pa.array(codes[order].astype(np.int32)), pa.array(metrics.tolist()))
    labels = [population.environment, population.learner, population.strategy]
    constant = np.zeros(len(order), dtype=np.int32)
    table = pa.Table.from_arrays(
        [
            *(pa.DictionaryArray.from_arrays(pa.array(constant), pa.array([label])) for label in labels),
            pa.array(np.asarray(columns["seed"], dtype=np.int64)[order]),
            pa.array(np.asarray(columns["step"], dtype=np.int64)[order]),
            metric,
            pa.array(np.asarray(columns["value"], dtype=np.float64)[order]),
        ],
        schema=SCHEMA.with_metadata(
            {_METADATA_KEY: json.dumps({"identity": population.identity, "versions": dict(versions)})}
        ),
    )
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the settings ("identity") and library versions ("versions") a file was made with."""
    metadata: dict[str, Any] = json.loads(pq.read_schema(path).metadata[_METADATA_KEY])
    return metadata


def open_rows(files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
    """Return the rows of the files as a DuckDB relation, in a fixed order."""
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")  # which slow queries would print
    rows = connection.read_parquet([str(f) for f in files])
    return rows.order("environment, learner, strategy, seed, metric, step")
