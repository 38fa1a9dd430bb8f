"""What a run writes beside its rows: the time each population took, tracebacks, and how such records are read."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from replaylab.errors import StorageError
from replaylab.study import files
from replaylab.study.plan import Population
from replaylab.study.progress import Silent
from replaylab.study.runner import Failure, Reporter
from replaylab.study.spec_errors import first_fault


class Timing(BaseModel):
    """What a file in ``timing/`` has to hold."""

    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    environment_steps: Annotated[int, Field(ge=0)] = 0
    episodes: Annotated[int, Field(ge=0)] = 0


MACHINE: TypeAdapter[Any] = TypeAdapter(dict[str, dict[str, str]])
TIMING: TypeAdapter[Any] = TypeAdapter(Timing)


def read_record(path: Path, shape: TypeAdapter[Any]) -> dict[str, Any]:
    """Return a JSON record; empty where there is none.

    Raises:
        StorageError: it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        text = path.read_bytes()
        shape.validate_json(text)
        record: dict[str, Any] = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise StorageError(
            f"{path} is damaged: {first_fault(error)}. Remove it; the report does without, and a run of the study "
            f"writes machine.json again."
        ) from error
    return record


class Recorder(Silent):
    """Passes events on, and writes times and tracebacks into the study's folder."""

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self._folder = folder
        self._reporter = reporter

    def progress(self, population: Population, step: int) -> None:
        """Pass it on."""
        self._reporter.progress(population, step)

    def split(self, population: Population) -> None:
        """Pass it on."""
        self._reporter.split(population)

    def finished(self, population: Population, seconds: float) -> None:
        """Write down the time; a budget in episodes counts episodes."""
        total = population.steps * len(population.seeds)
        timing = {
            "population": population.id,
            "runs": len(population.seeds),
            "environment_steps" if population.unit == "steps" else "episodes": total,
            "seconds": round(seconds, 3),
            f"{population.unit}_per_second": round(total / seconds, 1),
        }
        with contextlib.suppress(StorageError):  # on a full disk the rows of others may still fit, without their times
            files.write_text(self._folder / "timing" / f"{population.id}.json", json.dumps(timing, indent=2) + "\n")
        self._reporter.finished(population, seconds)

    def failed(self, failure: Failure) -> None:
        """Write down the traceback."""
        with contextlib.suppress(StorageError):  # it is shown at the end, too
            files.write_text(self._folder / "failures" / f"{failure.population.id}.txt", failure.traceback)
        self._reporter.failed(failure)
