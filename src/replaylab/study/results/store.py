"""The results on disk: one Parquet file per chunk, in long form.

Columns: see `SCHEMA`. Rows are sorted by seed, metric, step, and hold nothing of time or machine, so two runs
of the same study give equal rows. Each file's metadata carries the settings it came from, the library
versions, and the SHA-256 of its other bytes (`sealed`), which is checked whenever it is read: between the rows and the
footer, where no reader of Parquet looks. The footer also holds a video of greedy play by the first seed's agent, if
the study asks for one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from replaylab.errors import StorageError
from replaylab.files.atomic import write_bytes
from replaylab.files.canonical_json import digest
from replaylab.learners.training.metrics_recorder import OF_DIVERGENCE
from replaylab.study.plan import Chunk

if TYPE_CHECKING:
    import duckdb


_METADATA_KEY = b"replaylab"
MOST_BYTES = 70_000_000
"""Of a video. Readers of Parquet refuse the whole file, rows and all, where an entry of its footer has more than a
hundred million letters, and base64 makes four of three bytes."""

_VIDEO_KEYS = {bytes: b"replaylab_picture_greedy.webp", str: b"replaylab_picture_greedy.webp.not-made"}
"""Keys in the footer: of the video, or of the reason why it could not be made."""

_UNREADABLE = (OSError, ValueError, LookupError, TypeError, MemoryError)
"""Errors of reading a damaged file; Arrow's own errors are among them."""

FIX = (
    "`replaylab study run` moves what is damaged away and trains those runs again; or move it away yourself, and the "
    "rest is reported."
)

_LABEL = pa.dictionary(pa.int32(), pa.string())


def _column(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"meaning": meaning})


SCHEMA = pa.schema(
    [
        _column("environment", _LABEL, "name of the environment in the study file"),
        _column("learner", _LABEL, "name of the learner in the study file"),
        _column("strategy", _LABEL, "name of the replay strategy in the study file"),
        _column("seed", pa.int64(), "seed of the run; equal seeds pair across strategies"),
        _column("step", pa.int64(), "environment steps of that run so far; episodes where the budget is in episodes"),
        _column("metric", _LABEL, "what the value is, named as in Stable-Baselines3; ours under replay/"),
        _column("value", pa.float64(), "the value, in the metric's unit (returns: undiscounted reward)"),
    ]
)
"""Names, types and meanings of the columns; every file's schema contains the same text."""


def write_chunk(path: Path, chunk: Chunk, columns: Mapping[str, NDArray[Any]], versions: Mapping[str, str]) -> None:
    """Write a chunk's rows, wholly or not at all; arguments as those of `encoded`.

    Raises:
        StorageError: they cannot be written.
    """
    write_bytes(path, encoded(chunk, columns, versions))


def _numbers(values: NDArray[Any], dtype: type[np.generic]) -> pa.Array:
    """Return numbers for Arrow. `pa.array` would import pandas, if installed: a third of a second in each worker."""
    values = np.ascontiguousarray(values, dtype)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _strings(texts: Sequence[str]) -> pa.Array:
    letters = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, letters)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(letters)))


def encoded(
    chunk: Chunk,
    columns: Mapping[str, NDArray[Any]],
    versions: Mapping[str, str],
    video: bytes | str | None = None,
) -> bytes:
    """Return a chunk's rows as a Parquet file with its checksum.

    Args:
        chunk: whose rows these are.
        columns: seed int64, step int64, metric str, value float64; each of shape (rows,).
        versions: library versions, kept in the file's metadata.
        video: an animated WebP, or the reason why there is none; kept there too, unless it is above `MOST_BYTES`.
    """
    metrics, codes = np.unique(np.asarray(columns["metric"], dtype=np.str_), return_inverse=True)
    order = np.lexsort((columns["step"], codes, columns["seed"]))
    metric = pa.DictionaryArray.from_arrays(_numbers(codes[order], np.int32), _strings(metrics.tolist()))
    labels = [chunk.environment, chunk.learner, chunk.strategy]
    constant = _numbers(np.zeros(len(order)), np.int32)
    table = pa.Table.from_arrays(
        [
            *(pa.DictionaryArray.from_arrays(constant, _strings([label])) for label in labels),
            _numbers(np.asarray(columns["seed"])[order], np.int64),
            _numbers(np.asarray(columns["step"])[order], np.int64),
            metric,
            _numbers(np.asarray(columns["value"])[order], np.float64),
        ],
        schema=SCHEMA.with_metadata(
            {_METADATA_KEY: json.dumps({"identity": chunk.identity, "versions": dict(versions)})}
        ),
    )
    stream = BytesIO()
    with pq.ParquetWriter(stream, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        if video is not None:
            writer.add_key_value_metadata(_video_entry(video))
    return sealed(stream.getvalue())


def _video_entry(video: bytes | str) -> dict[bytes, bytes]:
    """Return the footer's entry of a video, or of the reason for none, such as that the file would be unreadable."""
    if len(video) > MOST_BYTES:
        video = (
            f"it has {len(video) / 1e6:.1f} MB, but {MOST_BYTES / 1e6:.0f} MB are the most that a file of results can "
            "hold of it; lower `watch.video`"
        )
    content = video.encode() if isinstance(video, str) else video
    return {_VIDEO_KEYS[type(video)]: base64.b64encode(content)}


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the settings ("identity") and library versions ("versions") a file was made with.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return _metadata(path)
    except _UNREADABLE as error:
        raise StorageError(f"{path} is damaged: {_why(error)}. {FIX}") from error


def read_video(path: Path) -> bytes | str | None:
    """Return the video that a chunk's file holds, or the reason why it could not be made; None if none was asked for.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        entries = pq.read_metadata(path).metadata or {}
        contents = {
            kind: base64.b64decode(entries[key], validate=True) for kind, key in _VIDEO_KEYS.items() if key in entries
        }
    except _UNREADABLE as error:
        raise StorageError(f"{path} is damaged: {_why(error)}. {FIX}") from error
    return contents[str].decode() if str in contents else contents.get(bytes)


def damage(path: Path) -> str | None:
    """Return in words what is wrong with a chunk's file; None if nothing is."""
    try:
        return damage_of(path.read_bytes(), path.stem)
    except _UNREADABLE as error:
        return _why(error)


def damage_of(content: bytes, identifier: str) -> str | None:
    """Return in words what is wrong with the bytes of a chunk's file; None if nothing is.

    Args:
        content: the bytes.
        identifier: the chunk's `Chunk.id`.
    """
    try:
        if not is_sealed(content):
            return "its checksum is missing or does not match its contents"
        metadata = _metadata(pa.BufferReader(content))
        if digest(metadata["identity"]) != identifier.rpartition(".")[2]:
            return "it holds the rows of other settings than its name says"
    except _UNREADABLE as error:
        return _why(error)
    return None


def diverged_seeds(content: bytes) -> list[int]:
    """Return the seeds that learned from no numbers any more, of the bytes of a chunk's sound file."""
    import pyarrow.compute as pc  # workers start without

    rows = pq.ParquetFile(pa.BufferReader(content)).read(["seed", "metric", "value"])
    lost = rows.filter(
        pc.and_(pc.is_in(rows["metric"], _strings(OF_DIVERGENCE)), pc.invert(pc.is_finite(rows["value"])))
    )
    return sorted(set(lost["seed"].to_pylist()))


def check(files: Iterable[Path]) -> None:
    """Raise an error that names the damaged ones of some chunks' files, if there are any.

    Raises:
        StorageError: some are damaged.
    """
    damaged = [f"{file} is damaged: {why}." for file in files if (why := damage(file))]
    if damaged:
        more = f" So are {len(damaged) - 1} more files there." if len(damaged) > 1 else ""
        raise StorageError(f"{damaged[0]}{more} {FIX}")


def open_rows(files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
    """Return the rows of the files as a DuckDB relation, in a fixed order.

    Raises:
        StorageError: a file is damaged.
    """
    check(files)
    return read_rows(files)


def read_rows(files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
    """Return the rows of files whose checksums were compared already; otherwise as `open_rows`."""
    import duckdb  # workers only write

    connection = duckdb.connect()
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("SET enable_progress_bar = false")  # without ipywidgets, notebooks refuse even that
    rows = connection.read_parquet([_without_patterns(str(f)) for f in files])
    return rows.order("environment, learner, strategy, seed, metric, step")


def _metadata(source: Path | pa.BufferReader) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(pq.read_schema(source).metadata[_METADATA_KEY])
    if not all(isinstance(metadata[part], dict) for part in ("identity", "versions")):
        raise TypeError("its metadata are not those of a study")
    return metadata


def _why(error: Exception) -> str:
    """Return in one line why a file cannot be read."""
    foreign = isinstance(error, LookupError | TypeError)
    return "it is not a file of a study's results" if foreign else str(error).partition("\n")[0].rstrip(".")


def _without_patterns(name: str) -> str:
    """Return a file name as DuckDB takes it, for which these are patterns."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def sealed(content: bytes) -> bytes:
    """Return a Parquet file with its checksum."""
    at = _footer(content)
    return content[:at] + sha256(content).digest() + content[at:]


def is_sealed(file: bytes) -> bool:
    """Return whether a file holds a checksum that matches its other bytes."""
    at = _footer(file)
    return at >= 32 and file[at - 32 : at] == sha256(file[: at - 32] + file[at:]).digest()


def _footer(content: bytes) -> int:
    """Return where a Parquet file's footer begins, by the length that stands behind it."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")
