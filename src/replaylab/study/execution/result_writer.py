"""Writes a run's files into the study's folder: rows, times, machines, tracebacks; workers write nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from shutil import rmtree

from replaylab.errors import StorageError
from replaylab.files.atomic import write_bytes, write_text
from replaylab.number_format import counted
from replaylab.study.execution.executor import Finished
from replaylab.study.execution.reporter import Failure
from replaylab.study.plan import Chunk, runs_of
from replaylab.study.results import records
from replaylab.study.results.folder import StudyFolder


class ResultWriter:
    """Writes the results of workers, each file completely or not at all."""

    def __init__(self, folder: StudyFolder) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Digests of the machines that the folder is known to name."""

    def write(self, chunk: Chunk, finished: Finished) -> None:
        """Put the draws of a chunk, if there are any, and its rows in their places.

        Raises:
            StorageError: they cannot be written.
        """
        if finished.tape:
            write_bytes(self._folder.tape_file(chunk), finished.tape)
        write_bytes(self._folder.file_of(chunk), finished.result)

    def tape_of(self, chunk: Chunk) -> Path:
        """Return the path of the draws that a chunk learns from."""
        assert chunk.tape_of is not None
        return self._folder.tape_file(chunk.tape_of).absolute()

    def drop_tape(self, chunk: Chunk) -> None:
        """Remove the draws that a chunk learned from."""
        tape = self.tape_of(chunk)
        tape.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # those of others are there
            tape.parent.rmdir()

    def checkpoints_of(self, chunk: Chunk) -> Path:
        """Return the folder of a chunk's checkpoints."""
        return (self._folder.path / "checkpoints" / chunk.id).absolute()

    def summary(self) -> str:
        """Return in words what an interrupted run leaves in the folder."""
        if not self._folder.has_records:
            return "nothing has been trained yet"
        chunks, present = self._folder.chunks, {p.id for p in self._folder.present}
        saved = [p for p in chunks if p.id not in present and (self.checkpoints_of(p) / "run.json").is_file()]
        return (
            f"{self._folder.path} holds the results of {runs_of([p for p in chunks if p.id in present]):,} of "
            f"{counted(runs_of(chunks), 'run')} and checkpoints of {runs_of(saved):,} more; the same command continues"
        )

    def drop_checkpoints(self, chunk: Chunk) -> None:
        """Remove a chunk's checkpoints: its rows are written, or it would raise again."""
        folder = self.checkpoints_of(chunk)
        rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # those of others are there
            folder.parent.rmdir()

    def write_time(self, chunk: Chunk, finished: Finished) -> None:
        """Write the time that a chunk took, and its machine; a budget in episodes counts episodes."""
        total = chunk.steps * len(chunk.seeds)
        machine = finished.machine
        time = {
            "chunk": chunk.id,
            "runs": len(chunk.seeds),
            "environment_steps" if chunk.unit == "steps" else "episodes": total,
            "seconds": round(finished.seconds, 3),
            f"{chunk.unit}_per_second": round(total / max(finished.seconds, 1e-9), 1),
            "machine": machine.digest,
        }
        with contextlib.suppress(StorageError):  # on a full disk the rows of others may still fit, without their times
            if machine.digest not in self._known:
                self._folder.write_machine(machine)
                self._known.add(machine.digest)
            records.write(self._folder.path / "timing" / f"{chunk.id}.json", time)

    def write_failure(self, failure: Failure) -> None:
        """Write the traceback of a failure."""
        with contextlib.suppress(StorageError):  # it is shown at the end, too
            write_text(self._folder.path / "failures" / f"{failure.chunk.id}.txt", failure.traceback)
