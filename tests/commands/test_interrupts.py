"""Ctrl-C on a terminal: the cursor comes back at every moment, and workers write checkpoints."""

import os
import pty
import re
import select
import signal
import sys
import time
from contextlib import suppress

import pytest

from replaylab.commands import main as cli
from replaylab.study import InProcess, Study
from tests.commands.test_main import TABULAR
from tests.study.tiny import rows

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"


@pytest.fixture
def long(tmp_path):
    """A study file whose training does not end while a test lasts."""
    file = tmp_path / "tiny.toml"
    file.write_text(TABULAR.format(more="").replace("steps = 200", "steps = 100_000_000"))
    return file


def interrupted(arguments: list[str], begun: bytes, delay: float) -> tuple[int, bytes]:
    """Run a command on a new terminal, press Ctrl-C some seconds after it has printed a text.

    Returns:
        The exit code, and what the terminal received.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "replaylab", *arguments])
    printed, pressed, until = b"", None, time.monotonic() + 100.0
    with suppress(OSError):  # of a terminal without processes
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.002)[0]:
                printed += os.read(terminal, 65_536)
            if pressed is None and begun in printed:
                pressed = time.monotonic() + delay
            if pressed is not None and time.monotonic() >= pressed:
                os.write(terminal, b"\x03")
                pressed = float("inf")
    if time.monotonic() >= until:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, printed


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.006, 0.01, 0.03, 0.3])
def test_ctrl_c_soon_after_the_start_restores_the_cursor(delay, long, tmp_path):
    command = ["study", "run", str(long), "--out", str(tmp_path / "out"), "--workers", "1"]
    code, printed = interrupted(command, b"4 runs to do", delay)
    assert (code, b"replaylab: interrupted; " in printed) == (130, True), printed
    assert printed.rfind(SHOW) >= printed.rfind(HIDE), printed


@pytest.mark.no_sanitizer
def test_ctrl_c_during_train_restores_the_cursor(tmp_path):
    options = ["--env", "FrozenLake-v1", "--learner", "q_learning", "--steps", "100000000"]
    code, printed = interrupted(["train", *options], HIDE, 0.0)
    assert code == 130
    assert printed.rfind(SHOW) > printed.rfind(HIDE)


@pytest.mark.no_sanitizer
def test_ctrl_c_during_the_check_leaves_no_folder(long, tmp_path):
    command = ["study", "run", str(long), "--out", str(tmp_path / "made" / "out"), "--workers", "1"]
    code, printed = interrupted(command, b"checking 2 cells", 0.0)
    assert (code, b"interrupted; nothing has been trained yet." in printed) == (130, True), printed
    assert not (tmp_path / "made").exists()


@pytest.mark.no_sanitizer
def test_ctrl_c_keeps_checkpoints_of_what_is_in_training(long, tmp_path):
    out = tmp_path / "out"
    command = ["study", "run", str(long), "--out", str(out), "--workers", "2"]
    code, printed = interrupted(command, b"0 of 4 runs done, 4 in training", 2.0)
    assert code == 130
    message = re.compile(r"holds the results of 0 of 4 runs\s+and\s+checkpoints\s+of\s+4\s+more;")
    assert message.search(printed.decode()), printed
    study = Study.from_folder(out)
    assert {folder.name for folder in (out / "checkpoints").iterdir()} == {chunk.id for chunk in study.chunks}
    begun: dict[str, int] = {}

    class EnoughError(Exception):
        pass

    class Watch:
        """A reporter that ends the run when it has heard of the first chunk."""

        def __getattr__(self, name):
            return lambda *_: None

        def progress(self, chunk, step):
            begun.setdefault(chunk.id, step)
            raise EnoughError

    with pytest.raises(EnoughError):
        study.run(executor=InProcess(), reporter=Watch())
    assert min(begun.values()) > 1_000, "it continues, and does not begin again"


@pytest.mark.no_sanitizer
def test_rows_are_kept_at_ctrl_c_and_the_run_continues(tmp_path):
    file = tmp_path / "tiny.toml"
    text = TABULAR.format(more="").replace("steps = 200", "steps = 500").replace("every = 100", "every = 500")
    file.write_text(f"{text}budget = {{ steps = 20_000 }}\n")  # of its last strategy
    out, unbroken = tmp_path / "out", Study.from_toml(file, tmp_path / "unbroken")
    command = ["study", "run", str(file), "--out", str(out), "--workers", "1"]
    code, printed = interrupted(command, b"2 of 4 runs done, 2 in training", 0.0)
    assert code == 130
    assert re.search(r"holds the results of 2 of 4\s+runs\s+and\s+checkpoints\s+of\s+2\s+more;", printed.decode())
    stopped = Study.from_folder(out)
    assert [chunk.strategy for chunk in stopped.present] == ["uniform"]
    assert stopped.levels()[0].runs == 2

    assert cli.main([*command, "--no-report"]) == 0
    unbroken.run(executor=InProcess())
    assert rows(stopped) == rows(unbroken)
