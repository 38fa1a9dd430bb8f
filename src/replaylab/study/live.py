"""The report while a study runs: its page is written again and again, and browsers load it again by themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import IO, Self

from replaylab.files.atomic import write_bytes
from replaylab.study.execution.reporter import Reporter
from replaylab.study.plan import Chunk
from replaylab.study.results.folder import sweep

SECONDS = 30
"""Seconds between two reports, at least, and between two loads of the page in a browser."""

_WRITE = """
import sys
from replaylab.study import Study
from replaylab.study.report.report import write_report
study = Study.from_folder(sys.argv[1])
write_report(study, study.folder, figure_files=False, refresh=int(sys.argv[2]))
"""

_REFRESH_TAG = re.compile(rb'<meta http-equiv="refresh"[^>]*>\n')


class LivePage:
    """A reporter that also writes the report while the study runs, and opens it in a browser; a context manager.

    A separate process writes it, so that neither training nor the collection of results waits. The next one starts when
    there are new results, after a pause of at least three times as long as the previous one took. An error while
    writing is noted once, and the study continues.

    Args:
        folder: the study's folder.
        reporter: receives the same progress.
    """

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self.note, self.activity, self.progress = reporter.note, reporter.activity, reporter.progress
        self.finished, self.diverged = reporter.finished, reporter.diverged
        self.split, self.failed = reporter.split, reporter.failed
        self._reporter = reporter
        self._folder, self._page = folder, folder / "report.html"
        self._stopped = Event()
        self._writer = Thread(target=self._write_reports, daemon=True)
        self._shown = False

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Start to write reports."""
        self._reporter.begin(todo, done, workers)
        self.note(f"live report: {self._page}")
        self._writer.start()

    def end(self) -> None:
        """Stop writing reports. Browsers still load the page again, for the one that follows the run."""
        self._reporter.end()
        self._stopped.set()
        if self._writer.is_alive():
            self._writer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Make sure that browsers no longer load the page again, and that it has been opened."""
        with suppress(OSError):  # there is no page, or the disk is full
            if self._writer.ident is not None:  # else the study did not begin, and the page is of another run
                sweep(self._folder)
                write_bytes(self._page, _REFRESH_TAG.sub(b"", self._page.read_bytes()))
            if error is None:
                self._show()

    def _show(self) -> None:
        """Open the page in a browser, once."""
        if not self._shown:
            self._shown = True
            browser = _python("-m", "webbrowser", self._page.absolute().as_uri(), errors=subprocess.DEVNULL)
            Thread(target=browser.wait, daemon=True).start()  # some return only when they are closed

    def _write_reports(self) -> None:
        """Write the report again until the end, if there are new results."""
        reported, noted = None, False
        while not self._stopped.is_set():
            began, rows = time.monotonic(), sorted((self._folder / "runs").glob("*.parquet"))
            if rows != reported:
                try:
                    self._write_report()
                    reported = rows
                except OSError as error:
                    if not noted:
                        self.note(f"The live report cannot be written; the study continues. {error}")
                    noted = True
            self._stopped.wait(max(SECONDS, 3 * (time.monotonic() - began)))

    def _write_report(self) -> None:
        """Write the report in a separate process and show it; the end of the run kills the process.

        Raises:
            OSError: the process failed, or could not be started.
        """
        with TemporaryFile() as errors:
            with _python("-c", _WRITE, str(self._folder), str(SECONDS), errors=errors) as process:
                while process.poll() is None:
                    if self._stopped.wait(0.1):
                        process.kill()
                        return
            if process.returncode:
                errors.seek(0)
                raise OSError((errors.read().decode(errors="replace").strip() or "It was killed.").splitlines()[-1])
        self._show()


def _python(*arguments: str, errors: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """Start Python, which imports modules from the same places as this process and receives no Ctrl-C."""
    path = os.pathsep.join(part for part in sys.path if part)
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        start_new_session=True,
    )
