"""What a run writes into the study's folder: rows, times, machines, tracebacks; workers write nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from shutil import rmtree

from replaylab.errors import StorageError
from replaylab.files.atomic import whole_file, write_text
from replaylab.study.execution.executor import Finished
from replaylab.study.execution.reporter import Failure
from replaylab.study.plan.populations import Population
from replaylab.study.results import records
from replaylab.study.results.folder import StudyFolder


class ResultWriter:
    """Writes what workers hand back, each file wholly or not at all."""

    def __init__(self, folder: StudyFolder) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Digests of the machines that the folder is known to name."""

    def write_rows(self, population: Population, finished: Finished) -> None:
        """Put a population's Parquet file in its place.

        Raises:
            StorageError: it cannot be written.
        """
        with whole_file(self._folder.file_of(population)) as temporary:
            temporary.write_bytes(finished.result)

    def tape_of(self, population: Population) -> Path:
        """Return where the draws are that a population learns from."""
        assert population.tape_of is not None
        return self._folder.tape_file(population.tape_of).absolute()

    def write_tape(self, population: Population, content: bytes) -> None:
        """Put a population's draws in their place.

        Raises:
            StorageError: they cannot be written.
        """
        with whole_file(self._folder.tape_file(population)) as temporary:
            temporary.write_bytes(content)

    def drop_tape(self, population: Population) -> None:
        """Remove the draws that a population learned from, unless the study keeps them."""
        if not self._folder.spec.keep_tapes:
            tape = self.tape_of(population)
            tape.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # those of others are there
                tape.parent.rmdir()

    def checkpoints_of(self, population: Population) -> Path:
        """Return where a population is kept while it is trained."""
        return (self._folder.path / "checkpoints" / population.id).absolute()

    def drop_checkpoints(self, population: Population) -> None:
        """Remove what a population kept: its rows are there, or it would only raise again."""
        folder = self.checkpoints_of(population)
        rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # those of others are there
            folder.parent.rmdir()

    @staticmethod
    def unsound(population: Population, finished: Finished) -> str | None:
        """Return in words why what a worker handed back are not a population's rows; None: they are."""
        from replaylab.study.results.store import damage_of  # heavy

        return damage_of(finished.result, population.id)

    @staticmethod
    def diverged(finished: Finished) -> list[int]:
        """Return the seeds whose networks diverged."""
        from replaylab.study.results.store import diverged_seeds  # heavy

        return diverged_seeds(finished.result)

    def write_time(self, population: Population, finished: Finished) -> None:
        """Write down how long it took, and where; a budget in episodes counts episodes."""
        total = population.steps * len(population.seeds)
        machine = finished.machine
        time = {
            "population": population.id,
            "runs": len(population.seeds),
            "environment_steps" if population.unit == "steps" else "episodes": total,
            "seconds": round(finished.seconds, 3),
            f"{population.unit}_per_second": round(total / max(finished.seconds, 1e-9), 1),
            "machine": machine.digest,
        }
        with contextlib.suppress(StorageError):  # on a full disk the rows of others may still fit, without their times
            if machine.digest not in self._known:
                self._folder.write_machine(machine)
                self._known.add(machine.digest)
            records.write(self._folder.path / "timing" / f"{population.id}.json", time)

    def write_failure(self, failure: Failure) -> None:
        """Write down the traceback."""
        with contextlib.suppress(StorageError):  # it is shown at the end, too
            write_text(self._folder.path / "failures" / f"{failure.population.id}.txt", failure.traceback)
