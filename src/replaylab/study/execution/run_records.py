"""What a run writes beside its rows: the time each population took, and tracebacks."""

from __future__ import annotations

import contextlib
from pathlib import Path

from replaylab.errors import StorageError
from replaylab.files.atomic import write_text
from replaylab.study.execution.progress import Silent
from replaylab.study.execution.runner import Failure, Reporter
from replaylab.study.plan.populations import Population
from replaylab.study.results import records


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
            records.write(self._folder / "timing" / f"{population.id}.json", timing)
        self._reporter.finished(population, seconds)

    def failed(self, failure: Failure) -> None:
        """Write down the traceback."""
        with contextlib.suppress(StorageError):  # it is shown at the end, too
            write_text(self._folder / "failures" / f"{failure.population.id}.txt", failure.traceback)
        self._reporter.failed(failure)
