"""`kill -9` of a study and all its workers at random times: what is there in the end equals an unbroken run."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from replaylab.study import InProcess, LocalProcesses, Study
from replaylab.study.execution.executor import Executor
from replaylab.study.results.folder import sweep
from tests.study.execution.test_study_run import start, wait_for, workers_of
from tests.study.tiny import rows, run_here, study

TABULAR = {
    "environments": ["FrozenLake-v1"],
    "seeds": 7,
    "chunk_size": 1,
    "budget": {"steps": 1_500},
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
}
NETWORKS = {"seeds": 6, "chunk_size": 2, "budget": {"steps": 8_000}, "strategies__none": {"type": "online"}}


def kill_all(run: subprocess.Popen[bytes]) -> None:
    """Kill a run and its workers, each with -9, and wait until all are gone."""
    victims = [run.pid, *workers_of(run.pid)]
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(victim, signal.SIGKILL)
    run.wait()
    wait_for(lambda: not any(Path(f"/proc/{victim}").exists() for victim in victims))


def check(killed: Study, unbroken: Study, executor: Executor) -> None:
    """The files are those of an uninterrupted run."""
    assert killed.run(executor=executor).complete
    np.testing.assert_equal(rows(killed), rows(unbroken))
    runs, timing = ({f.stem for f in (killed.folder / name).iterdir()} for name in ("runs", "timing"))
    assert runs == {f.stem for f in (unbroken.folder / "runs").iterdir()}
    assert timing <= runs  # how long a chunk took is lost if the kill comes just after its rows are there
    assert not list(killed.folder.rglob("*.unfinished"))


def files_read(killed: Study) -> int:
    """Read all files that are there, and return how many."""
    chunks_present = killed.present
    assert not chunks_present or np.isfinite(killed.results().aggregate("count(*) as n").fetchnumpy()["n"]).all()
    return len(chunks_present)


def files(killed: Study) -> int:
    """Count the files of rows, without reading them: it is asked often."""
    return len(list(killed.folder.glob("runs/*.parquet")))


@pytest.mark.no_sanitizer
@pytest.mark.parametrize(("kills", "seeds", "steps"), [(3, 4, 300), pytest.param(10, 7, 1_500, marks=pytest.mark.slow)])
def test_kills_of_a_study_of_tables(tmp_path, kills, seeds, steps):
    """Half of the kills come at any time, half a moment after one more chunk is there, to span it all."""
    clock = random.Random(5)
    tables = TABULAR | {"seeds": seeds, "budget": {"steps": steps}}
    unbroken = run_here(tmp_path / "unbroken", **tables)
    tiny = study(tmp_path / "killed", **tables)
    seen = []
    for turn in range(kills):
        run = start(tiny.folder, **tables)
        if turn % 2:
            time.sleep(clock.uniform(0.0, 1.5))
        else:
            before = files_read(tiny)
            wait_for(lambda run=run, count=before: files(tiny) > count or run.poll() is not None)
            time.sleep(clock.uniform(0.0, 0.1))
        kill_all(run)
        seen.append(files_read(tiny))
    assert 0 < seen[0] < seen[-1] <= len(unbroken.chunks)
    check(tiny, unbroken, InProcess())


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_ten_kills_of_a_study_of_networks(tmp_path):
    """Kills at any time, while processes start, train, write or end."""
    clock = random.Random(6)
    unbroken = study(tmp_path / "unbroken", **NETWORKS)
    began = time.monotonic()
    assert unbroken.run(workers=2).complete
    whole_run = time.monotonic() - began
    tiny = study(tmp_path / "killed", **NETWORKS)
    for _ in range(10):
        run = start(tiny.folder, **NETWORKS)
        time.sleep(clock.uniform(0.0, 0.6) * whole_run)
        kill_all(run)
        files_read(tiny)
    check(tiny, unbroken, LocalProcesses(2))


WRITER = textwrap.dedent(
    """
    import os, signal, sys
    from pathlib import Path
    from replaylab.files.atomic import whole_file
    with whole_file(Path(sys.argv[1])) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_a_file_half_written_at_a_kill_is_swept_up(tmp_path):
    target = tmp_path / "runs" / "x.parquet"
    assert subprocess.run([sys.executable, "-c", WRITER, str(target)], check=False).returncode == -signal.SIGKILL
    (left,) = target.parent.iterdir()
    assert left.name.endswith(".unfinished")
    assert not list(target.parent.glob("*.parquet"))
    sweep(tmp_path)
    assert not list(target.parent.iterdir())


def test_a_study_that_was_killed_can_be_opened(tmp_path):
    """The first thing that a run writes is the study, so a folder is never without it."""
    run = start(tmp_path, **TABULAR)
    wait_for(lambda: workers_of(run.pid))
    kill_all(run)
    assert Study.from_folder(tmp_path).spec == study(tmp_path, **TABULAR).spec
    assert json.loads((tmp_path / "study.json").read_text())["name"] == "tiny"
