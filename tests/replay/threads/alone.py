"""Programs that may hang or abort, each run in its own process; and calls that threads repeat together."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

PREFACE = """
import faulthandler, os, signal, sys, threading, time
import numpy as np
from replaylab import Field, ReplayBuffer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs do not hear it
"""


def run_alone(code, *args, seconds=20):
    """Run a program; return what it printed. A hang ends with the stacks of its threads."""
    guard = f"faulthandler.dump_traceback_later({seconds}, exit=True)\n"
    program = PREFACE + guard + textwrap.dedent(code)
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            out, err = run.communicate(timeout=seconds + 10)
        finally:  # with all that it forked
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, f"exit {run.returncode}\n{out}\n{err[-4000:]}"
    return out


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
