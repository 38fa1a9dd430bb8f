"""Programs that may hang or abort, each run in its own process; and calls that threads repeat together."""

import atexit
import contextlib
import functools
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

PREFACE = """
import faulthandler, os, signal, sys, threading, time
import numpy as np
from replaylab import Field, ReplayBuffer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs do not hear it
"""

# Makes a child for each program; the child leaves the loop, and ends as any program does.
READY = """
import pickle
while True:
    try:
        asked = pickle.load(sys.stdin.buffer)
    except EOFError:
        sys.exit()
    child = os.fork()
    if child == 0:
        break
    os.write(1, child.to_bytes(8, "little"))
    os.write(1, os.waitpid(child, 0)[1].to_bytes(8, "little"))
program, sys.argv[1:], streams = asked
os.setsid()
for stream, path in enumerate(streams, 1):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
exec(compile(program, "<string>", "exec"))
"""


@functools.cache
def _ready():
    """Return a process that has imported what every program does."""
    command = [sys.executable, "-c", PREFACE + READY]
    ready = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def end():
        with ready:
            ready.kill()

    atexit.register(end)
    return ready


def run_alone(code, *args, seconds=20):
    """Run a program; return what it printed. A hang ends with the stacks of its threads."""
    guard = f"faulthandler.dump_traceback_later({seconds}, exit=True)\n"
    program = PREFACE + guard + textwrap.dedent(code)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("out", "err")]
        ready = _ready()
        ready.stdin.write(pickle.dumps((program, list(map(str, args)), streams)))
        ready.stdin.flush()
        pid = _number(ready)
        if not select.select([ready.stdout], [], [], seconds + 10)[0]:
            os.killpg(pid, signal.SIGKILL)
        status = _number(ready)
        with contextlib.suppress(ProcessLookupError):  # all that it forked
            os.killpg(pid, signal.SIGKILL)
        out, err = (path.read_text() for path in streams)
    assert status == 0, f"exit {os.waitstatus_to_exitcode(status)}\n{out}\n{err[-4000:]}"
    return out


def _number(ready):
    said = os.read(ready.stdout.fileno(), 8)
    assert len(said) == 8, "the process that makes the others has ended"
    return int.from_bytes(said, "little")


def repeat_together(actions, seconds=1.0):
    """Repeat each action in its own thread for so long, and raise the first error of any."""
    end, errors = time.monotonic() + seconds, []

    def work(action):
        try:
            while time.monotonic() < end:
                action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
