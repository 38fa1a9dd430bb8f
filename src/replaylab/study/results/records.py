"""JSON records of a study's folder: ``study.json``, ``machine.json``, ``timing/``. Each holds its own checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from replaylab.errors import StorageError
from replaylab.files.atomic import write_text
from replaylab.files.bundle import seal
from replaylab.study.results.provenance import Machine
from replaylab.study.spec.errors import first_fault


class Timing(BaseModel):
    """The required contents of a file in ``timing/``."""

    model_config = ConfigDict(strict=True)

    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    environment_steps: Annotated[int, Field(ge=0)] = 0
    episodes: Annotated[int, Field(ge=0)] = 0
    machine: str | None = None
    """Digest of the machine, which ``machine.json`` knows."""


class Machines(BaseModel):
    """The required contents of ``machine.json``: the machine of the last run, and others, by digest."""

    versions: dict[str, str]
    hardware: dict[str, str]
    others: dict[str, Machine] = {}


class Reports(BaseModel):
    """The required contents of ``reports.json``: the seeds of each report, and the analyses planned then, if any."""

    model_config = ConfigDict(strict=True)

    seeds: list[list[int]] = []
    planned: list[dict[str, Any] | None] | None = None

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if self.planned is not None and len(self.planned) != len(self.seeds):
            raise ValueError("`planned` must have one entry for each entry of `seeds`")
        return self


SHAPES: Mapping[str, type[BaseModel]] = {"machine": Machines, "reports": Reports}
"""Shapes of records by name; the others are timings."""


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record with its checksum.

    Raises:
        StorageError: it cannot be written.
    """
    write_text(path, json.dumps({**record, "crc32": seal(record)}, indent=2, ensure_ascii=False) + "\n")


def opened(text: bytes) -> dict[str, Any]:
    """Return a record from its bytes.

    Raises:
        ValueError: it is not a record, or is damaged.
    """
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError("it must be a table")
    if record.pop("crc32", None) != seal(record):
        raise ValueError("its checksum does not match its contents")
    return record


def read(path: Path, shape: type[BaseModel]) -> dict[str, Any]:
    """Return a record of a shape; empty if it is missing.

    Raises:
        StorageError: it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        record = opened(path.read_bytes())
        shape.model_validate(record)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} is damaged: {first_fault(error)}. Remove it; the report does without, and a run of the study "
            f"writes machine.json again."
        ) from error
    return record


def machines_of(record: Mapping[str, Any]) -> dict[str, Machine]:
    """Return the machines in a record ``machine``, by digest; first the one that ran last."""
    if not record:
        return {}
    latest = Machine(record["versions"], record["hardware"])
    return {latest.digest: latest} | {digest: Machine(**fields) for digest, fields in record.get("others", {}).items()}
