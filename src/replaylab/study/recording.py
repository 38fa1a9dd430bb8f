"""What a run writes beside its rows: the time each population took, and tracebacks."""

from __future__ import annotations

import json
from pathlib import Path

from replaylab.study import files
from replaylab.study.plan import Population
from replaylab.study.progress import Silent
from replaylab.study.runner import Failure, Reporter


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
        files.write_text(self._folder / "timing" / f"{population.id}.json", json.dumps(timing, indent=2) + "\n")
        self._reporter.finished(population, seconds)

    def failed(self, failure: Failure) -> None:
        """Write down the traceback."""
        files.write_text(self._folder / "failures" / f"{failure.population.id}.txt", failure.traceback)
        self._reporter.failed(failure)
