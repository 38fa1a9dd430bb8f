"""A study's report while the study runs: a page for this machine alone, which fills up as chunks end.

The server listens on 127.0.0.1 and answers with the page, the newest report, the figures that are too large for it, and
the progress as a stream of events. Its own process writes that report again after chunks have ended, so that
training waits for nothing; it rests at least three times as long as the last one took.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from tempfile import TemporaryDirectory
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Self, cast

from replaylab.errors import ConfigError
from replaylab.study.execution.progress import Tally, standing
from replaylab.study.execution.reporter import Failure, Reporter
from replaylab.study.plan.chunks import Chunk

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

PORT = 8765
"""Default port of the page."""

_REST = 2.0
"""Seconds between two reports, at least."""

_GOODBYE = 3.0
"""Seconds that an ended study waits for open pages to fetch the last report."""

_FILE = re.compile(r"/((?:figures|tables)/[\w.-]+\.(svg|webp|csv))")
_KINDS = {"svg": "image/svg+xml", "webp": "image/webp", "csv": "text/csv; charset=utf-8"}

_NO_REPORT = "the report could not be written"

_WRITE_REPORT = """
import sys
from replaylab.study import Study
Study.from_folder(sys.argv[1]).report(sys.argv[2], figure_files=False)
"""


@dataclass(frozen=True)
class _State:
    """The state that open pages receive."""

    share: float = 0.0
    text: str = "starting"
    failed: tuple[str, ...] = ()
    report: int = 0
    """Number of reports so far: a page fetches a report that it has not seen."""

    over: bool = False


class LivePage:
    """A reporter that also shows the progress on a page; a context manager.

    Args:
        study: which runs.
        reporter: receives the same progress.
        port: where on 127.0.0.1; 0: any that is free (`address` has it).

    Raises:
        ConfigError: the port is in use, or none.
    """

    def __init__(self, study: ReportedStudy, reporter: Reporter, port: int = PORT) -> None:
        self._study, self._reporter = study, reporter
        self._tally = Tally()
        self._state = _State()
        self._changed = Condition()
        self._wanted = self._stopped = False
        self._streams = 0
        self._report = b""
        self._folder: Path | None = None  # of that report
        self._fetched_last = False
        self._writer: subprocess.Popen[bytes] | None = None
        self._server = _listening(port, self)
        self._threads = [Thread(target=self._server.serve_forever, args=(0.1,)), Thread(target=self._write_reports)]

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.kill()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def finish(self, report: Path) -> None:
        """Show the last report, and wait a little until the pages that are open have it."""
        with self._changed:
            self._report, self._folder = report.read_bytes(), report.parent
            self._tell(text=f"The study has ended. Its report: {report}", share=1.0, over=True, new_report=True)
            if self._streams:
                self._changed.wait_for(lambda: self._fetched_last, timeout=_GOODBYE)

    # The methods of a reporter.

    def note(self, line: str) -> None:
        """Something else than training begins."""
        self._reporter.note(line)

    def begin(self, todo: Sequence[Chunk], done: Sequence[Chunk], workers: int) -> None:
        """Work starts."""
        self._reporter.begin(todo, done, workers)
        self._tally.begin(todo, done)
        self._heard(report=bool(done))

    def progress(self, chunk: Chunk, step: int) -> None:
        """A chunk has taken steps."""
        self._reporter.progress(chunk, step)
        self._tally.reached(chunk, step)
        self._heard()

    def finished(self, chunk: Chunk, seconds: float) -> None:
        """A chunk's file is in place."""
        self._reporter.finished(chunk, seconds)
        self._tally.finished(chunk)
        self._heard(report=True)

    def diverged(self, chunk: Chunk, seeds: Sequence[int]) -> None:
        """Seeds have diverged; the report has a warning."""
        self._reporter.diverged(chunk, seeds)

    def split(self, chunk: Chunk) -> None:
        """A chunk raised."""
        self._reporter.split(chunk)
        self._tally.split(chunk)
        self._heard()

    def failed(self, failure: Failure) -> None:
        """A chunk will not finish."""
        self._reporter.failed(failure)
        self._tally.dropped(failure.chunk)
        line = f"{failure.chunk.label}: {failure.reason}"
        self._heard(failed=(*self._state.failed, line))

    def end(self) -> None:
        """Work is over."""
        self._reporter.end()

    def _heard(self, *, report: bool = False, failed: tuple[str, ...] | None = None) -> None:
        with self._changed:
            self._wanted = self._wanted or report
            share = self._tally.steps / self._tally.todo_steps if self._tally.todo_steps else 1.0
            self._tell(text=standing(self._tally), share=share, failed=failed)

    def _tell(
        self,
        *,
        text: str,
        share: float,
        failed: tuple[str, ...] | None = None,
        over: bool = False,
        new_report: bool = False,
    ) -> None:
        """Change what is sent to open pages; the lock is held."""
        failures = self._state.failed if failed is None else failed
        self._state = _State(share, text, failures, self._state.report + new_report, over)
        self._changed.notify_all()

    def _write_reports(self) -> None:
        """Write the report again whenever there is more of it, in its own process."""
        with TemporaryDirectory() as folder:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._wanted or self._stopped)
                    if self._stopped:
                        return
                    self._wanted = False
                    began = time.monotonic()
                    self._writer = _report_process(self._study.folder, folder)
                _, printed = self._writer.communicate()
                with self._changed:
                    if not self._state.over and not self._stopped:
                        self._written(Path(folder, "report.html"), printed)
                    rest = max(_REST, 3 * (time.monotonic() - began))
                    self._changed.wait_for(lambda: self._stopped, timeout=rest)

    def _written(self, report: Path, printed: bytes) -> None:
        """Show a report that a process has written, or its error; the lock is held."""
        wrong = self._writer is None or self._writer.returncode != 0
        if not wrong:
            self._report, self._folder = report.read_bytes(), report.parent
        lines = printed.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        failed = tuple(line for line in self._state.failed if not line.startswith(_NO_REPORT))
        if wrong:
            failed = (*failed, f"{_NO_REPORT}: {lines[-1]}")
        self._tell(text=self._state.text, share=self._state.share, failed=failed, new_report=not wrong)

    # Called by the server.

    @cached_property
    def page(self) -> bytes:
        """The page without a report."""
        from replaylab.study.report.page import render  # heavy

        return render("live", spec=self._study.spec).encode()

    def report(self) -> tuple[bytes, bool]:
        """The newest report, empty before the first, and whether it is the last."""
        with self._changed:
            return self._report, self._state.over

    def file(self, name: str) -> bytes | None:
        """A figure or a table beside the newest report, None if it has none of that name."""
        with self._changed:
            path = self._folder and self._folder / name
        return path.read_bytes() if path and path.is_file() else None

    def fetched_last(self) -> None:
        """Note that a page has the last report."""
        with self._changed:
            self._fetched_last = True
            self._changed.notify_all()

    def stream(self, handler: BaseHTTPRequestHandler) -> None:
        """Write what changes, until the study has ended or nobody listens."""
        with self._changed:
            self._streams += 1
        sent: _State | None = None
        try:
            while not (self._stopped or (sent is not None and sent.over)):
                with self._changed:
                    state = sent  # of this thread
                    self._changed.wait_for(lambda: self._state != state or self._stopped, timeout=15.0)  # noqa: B023
                    sent = self._state
                handler.wfile.write(f"data: {json.dumps(vars(sent))}\n\n".encode())
                handler.wfile.flush()
                time.sleep(0.2)
        except OSError:  # the page was closed
            pass
        finally:
            with self._changed:
                self._streams -= 1


class _Server(ThreadingTCPServer):
    allow_reuse_address = os.name != "nt"  # there it would share a port that is in use
    daemon_threads = True
    block_on_close = False
    live: LivePage

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a page that was closed while it was written to."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast("_Server", self.server)
        port = server.server_address[1]
        host, _, named = self.headers.get("Host", "").partition(":")
        if host not in ("127.0.0.1", "localhost") or (named or "80") != str(port):  # a foreign site's name for us
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._send(server.live.page, "text/html; charset=utf-8")
        elif self.path.startswith("/report?"):
            content, last = server.live.report()
            self._send(content, "text/html; charset=utf-8")
            if last:
                server.live.fetched_last()
        elif (asked := _FILE.fullmatch(self.path)) and (file := server.live.file(asked[1])) is not None:
            self._send(file, _KINDS[asked[2]])
        elif self.path == "/events":
            self._head("text/event-stream")
            server.live.stream(self)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes, kind: str) -> None:
        self._head(kind, len(content))
        self.wfile.write(content)

    def _head(self, kind: str, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        if length is not None:  # a page that was cut off is known as one
            self.send_header("Content-Length", str(length))
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the terminal shows the study."""


def _report_process(results: Path, folder: str) -> subprocess.Popen[bytes]:
    """Return a process that writes a report into a folder, and imports modules from the same places as this one."""
    path = os.pathsep.join(part for part in sys.path if part)
    return subprocess.Popen(
        [sys.executable, "-c", _WRITE_REPORT, str(results), folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
    )


def _listening(port: int, live: LivePage) -> _Server:
    try:
        server = _Server(("127.0.0.1", port), _Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"`port` must be free on 127.0.0.1, but {port} is not ({why}). Give another one (--port), or 0 for any."
        ) from error
    server.live = live
    return server
