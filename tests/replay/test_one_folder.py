"""Several threads and processes that save to one folder, and loads in between."""

import multiprocessing
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from replaylab.errors import ConfigError, SnapshotError, StorageError
from replaylab.files.folder import one_writer
from replaylab.replay import Field, MemoryMap, ReplayBuffer, Reservoir, snapshot


def _saving(folder, times, number):
    buffer = ReplayBuffer(400, {"x": Field((50,))}, seed=number)
    buffer.extend(x=np.full((400, 50), float(number)))
    for _ in range(times):
        buffer.add(x=np.full(50, float(number)))
        buffer.save(folder)


def test_processes_saving_to_one_folder_wait_for_each_other(tmp_path):
    _saving(tmp_path, 1, 0)
    context = multiprocessing.get_context("spawn")
    savers = [context.Process(target=_saving, args=(tmp_path, 12, k)) for k in (1, 2)]
    for saver in savers:
        saver.start()
    loads, manifest = 0, tmp_path / "manifest.json"
    first = manifest.stat().st_mtime_ns
    while any(saver.is_alive() for saver in savers):
        if manifest.stat().st_mtime_ns == first:  # they have not begun
            time.sleep(0.005)
            continue
        rows = ReplayBuffer.load(tmp_path).columns["x"]
        assert len(np.unique(rows)) == 1
        loads += 1
    assert [saver.exitcode for saver in savers] == [0, 0]
    assert loads
    assert len({file.name.rpartition("-")[2] for file in tmp_path.glob("rows-*")}) >= 1


def test_threads_that_save_to_one_folder_wait_for_each_other(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(_saving, tmp_path, 25, k) for k in (1, 2)]:
            future.result()
    assert len(np.unique(ReplayBuffer.load(tmp_path).columns["x"])) == 1


def test_a_load_begins_again_where_a_save_came_between(tmp_path, monkeypatch):
    buffer = ReplayBuffer(5, {"x": Field()}, seed=0)
    buffer.extend(x=np.arange(5.0))
    buffer.save(tmp_path)
    read = snapshot.read_manifest
    left = [3]

    def and_then_saved(path):
        manifest = read(path)
        if left[0] and not saving:
            left[0] -= 1
            saving.append(1)
            buffer.add(x=9.0)
            buffer.save(tmp_path)
            saving.pop()
        return manifest

    saving = []
    monkeypatch.setattr(snapshot, "read_manifest", and_then_saved)
    assert sorted(ReplayBuffer.load(tmp_path).columns["x"]) == [3.0, 4.0, 9.0, 9.0, 9.0]
    monkeypatch.setattr(snapshot, "read_manifest", read)
    next(tmp_path.glob("rows-*")).unlink()
    with pytest.raises(SnapshotError, match="is missing"):
        ReplayBuffer.load(tmp_path)


@pytest.mark.parametrize("where", ["storage", "retention"])
def test_episodes_go_where_next_observations_must_be_stored(where, tmp_path):
    options = {"storage": MemoryMap(tmp_path / "rows")} if where == "storage" else {"retention": Reservoir()}
    episode = {"obs": np.arange(4.0), "action": np.zeros(3, int), "reward": np.ones(3), "terminated": True}
    buffer = ReplayBuffer.from_episodes([episode, episode], seed=0, **options)
    assert buffer.next_obs == "stored"
    assert buffer.get([2])["next_obs"].tolist() == [3.0]


def test_odd_seeds_and_progress_are_reported():
    fields = {"x": Field()}
    same = [ReplayBuffer(9, fields, seed=seed) for seed in (3, np.array(3))]
    for buffer in same:
        buffer.extend(x=np.arange(9.0))
    assert same[0].sample(5).id.tolist() == same[1].sample(5).id.tolist()
    with pytest.raises(ConfigError, match="`progress` must be in"):
        same[0].sample(3, progress=[[1], [1, 2]])


def _holding(folder, held, let_go):
    with one_writer(folder):
        held.set()
        let_go.wait(60)


def test_a_signal_handler_that_interrupts_a_writer_is_refused(tmp_path):
    """Also while the writer waits for another process."""
    context = multiprocessing.get_context("spawn")
    held, let_go, log = context.Event(), context.Event(), []
    other = context.Process(target=_holding, args=(tmp_path, held, let_go))
    other.start()
    assert held.wait(60)

    def handler(*_):
        with pytest.raises(StorageError, match="a signal handler has interrupted a write to"), one_writer(tmp_path):
            pass
        log.append("refused")
        let_go.set()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with one_writer(tmp_path):
            log.append("this thread")
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    other.join(60)
    assert log == ["refused", "this thread", "refused"]


STRESS = """
import faulthandler, signal, sys, time
from pathlib import Path
from replaylab.errors import StorageError
from replaylab.files.folder import _folders, one_writer
folder, inside = Path(sys.argv[1]), [0, 0]
def handler(*_):
    try:
        with one_writer(folder):
            inside[1] += 1
    except StorageError:
        pass
    if time.monotonic() < end:
        signal.setitimer(signal.ITIMER_REAL, 0.00037)  # one at a time
faulthandler.dump_traceback_later(50, exit=True)
signal.signal(signal.SIGALRM, handler)
end = time.monotonic() + 0.6
signal.setitimer(signal.ITIMER_REAL, 0.001)
while time.monotonic() < end:
    with one_writer(folder):
        inside[0] += 1
    sum(range(1000))
signal.setitimer(signal.ITIMER_REAL, 0)
assert min(inside) > 10, inside
assert [(one.file, one.thread) for one in _folders.values()] == [(-1, 0)]
"""


def test_signal_handlers_do_not_wait_for_themselves(tmp_path):
    subprocess.run([sys.executable, "-c", STRESS, str(tmp_path)], check=True, timeout=120)


def test_a_child_forked_within_closes_nothing(tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom replaylab.files.folder import one_writer\n"
        "with one_writer(Path(sys.argv[1])):\n    child = os.fork()\n    if not child:\n"
        "        mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]\n"
        "if child:\n    sys.exit(os.waitpid(child, 0)[1] != 0)\n[os.fstat(one) for one in mine]\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
