"""The results of a finished study in one small Parquet file, `rows.parquet`, which can be tracked beside its report.

It has the columns of `replaylab.study.results.store.SCHEMA`, for fewer metrics than the files of a run. Its metadata
holds the study's settings, the seeds that each chunk trained, the library versions and the JSON records of the
folder. A `replaylab.study.Study` opens the file's folder like any other, except that nothing can be run there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replaylab.errors import SpecError, StorageError
from replaylab.files.atomic import write_bytes
from replaylab.study.plan import Chunk, plan
from replaylab.study.results.folder import PUBLISHED
from replaylab.study.results.store import SCHEMA, is_sealed, read_rows, sealed
from replaylab.study.spec.components import json_data
from replaylab.study.spec.errors import first_fault
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    import duckdb

_METADATA_KEY = b"replaylab_published"
_SORTABLE = pa.schema(
    [pa.field(field.name, pa.string(), False) if pa.types.is_dictionary(field.type) else field for field in SCHEMA]
)
_ENCODING = {
    "compression": "zstd",
    "compression_level": 19,
    "use_dictionary": [name for name in SCHEMA.names if name != "value"],  # values are smallest as they are
}


@dataclass(frozen=True)
class PublishedRows:
    """A folder with the file `rows.parquet` of a study; it is only read."""

    spec: Spec
    path: Path

    @property
    def file(self) -> Path:
        """Path of the file."""
        return self.path / PUBLISHED

    @property
    def chunks(self) -> list[Chunk]:
        """Every chunk of the study, chunked as in the published results."""
        return plan(self.spec, [chunk.identity for chunk in self.present])

    @cached_property
    def present(self) -> list[Chunk]:
        """The chunks whose rows were published."""
        cells = {p.key: p for p in plan(self.spec)}
        published = self._metadata["chunks"]
        return [cells[tuple(cell)].with_seeds(tuple(seeds)) for *cell, seeds in published if tuple(cell) in cells]

    def file_of(self, chunk: Chunk) -> Path:
        """Return the file that holds the chunk's rows, or the path of a missing file."""
        published = {p.id for p in self.present}
        return self.file if chunk.id in published else self.path / "runs" / f"{chunk.id}.parquet"

    def versions(self) -> list[dict[str, str]]:
        """Return the distinct sets of library versions that the chunks were trained with."""
        sets: list[dict[str, str]] = self._metadata["versions"]
        return sets

    def rows(self) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation.

        Raises:
            StorageError: the file is damaged.
        """
        if not is_sealed(self.file.read_bytes()):
            raise StorageError(f"{self.file} is damaged: its checksum does not match its contents. Restore the file.")
        return read_rows([self.file])

    def record(self, name: str) -> dict[str, Any]:
        """Return a JSON record of the folder that was published, such as ``machine``; empty if there is none."""
        record: dict[str, Any] = self._metadata["records"].get(self._names.get(name, name), {})
        return record

    @cached_property
    def _names(self) -> dict[str, str]:
        return _lasting_names(self.present)

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        return _metadata(self.file)


def published_spec(folder: Path) -> Spec:
    """Return the study whose published rows a folder holds.

    Raises:
        SpecError: its settings are those of another version of replaylab.
        StorageError: the file is damaged.
    """
    settings = _metadata(folder / PUBLISHED)["study"]
    try:
        return Spec.from_record(json.dumps(settings))
    except ValueError as error:
        raise SpecError(
            f"{folder / PUBLISHED}: its settings are those of another version of replaylab: {first_fault(error)}. Open "
            f"it with the version it was written with."
        ) from error


def write_published_rows(
    folder: Path,
    spec: Spec,
    chunks: Sequence[Chunk],
    rows: pa.Table,
    versions: Sequence[Mapping[str, str]],
    folder_records: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Write `rows.parquet` into a folder and return its path.

    Args:
        folder: where to write; created if it is missing.
        spec: the study.
        chunks: those whose rows these are.
        rows: the rows, with the columns of `SCHEMA` in any order of rows.
        versions: the distinct sets of library versions.
        folder_records: JSON records of the study's folder, by name: ``machine``, ``reports``, ``timing/<chunk>``.

    Raises:
        StorageError: the file cannot be written.
    """
    lasting = _lasting_names(chunks)
    metadata = {
        "study": json_data(spec),
        "chunks": [[*p.key, list(p.seeds)] for p in chunks],
        "versions": [dict(libraries) for libraries in versions],
        "records": {lasting.get(name, name): dict(record) for name, record in folder_records.items()},
    }
    rows = rows.cast(_SORTABLE).sort_by([(name, "ascending") for name in ("metric", *SCHEMA.names[:5])])
    stream = BytesIO()
    with pq.ParquetWriter(stream, SCHEMA, **_ENCODING) as writer:
        for metric in pc.unique(rows["metric"]).to_pylist():  # one row group each, so that equal values are found
            part = rows.filter(pc.equal(rows["metric"], metric))
            writer.write_table(part.cast(SCHEMA))
        writer.add_key_value_metadata({_METADATA_KEY.decode(): json.dumps(metadata, separators=(",", ":"))})
    write_bytes(folder / PUBLISHED, sealed(stream.getvalue()))
    return folder / PUBLISHED


def _lasting_names(chunks: Sequence[Chunk]) -> dict[str, str]:
    """Return the published name of each chunk's record; ids can be others in the next version of replaylab."""
    return {f"timing/{p.id}": f"timing/{'/'.join(p.key)}/{p.seeds[0]}" for p in chunks}


def _metadata(file: Path) -> dict[str, Any]:
    try:
        metadata: dict[str, Any] = json.loads(pq.read_metadata(file).metadata[_METADATA_KEY])
        return metadata
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StorageError(f"{file} is damaged or holds no published rows of a study. Restore the file.") from error
