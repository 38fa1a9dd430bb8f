"""The fuzzer for a short time; and that it would find what it looks for."""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from . import __main__ as fuzz
from . import targets

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(sys.platform != "linux", reason="files of rows need Linux"),
]


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_the_corpus_is_read_without_complaint(name):
    target = targets.TARGETS[name](0)
    for entry, files in target.entries.items():
        if name == "storage":
            target.rows.write_bytes(files[targets.ROWS])
            target.read(entry, 0)
        else:
            target.read(target.folder / entry)
        assert target.refused == 0 or len(entry.split(".")) > 3, entry  # a find that is kept may be refused
        target.refused = 0
    target.close()


def test_the_corpus_is_small():
    assert sum(file.stat().st_size for file in targets.CORPUS.iterdir()) < 200_000


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_a_case_is_a_function_of_its_number(name):
    outcomes = []
    for _ in range(2):  # one closed before the next begins: each puts back what it found
        target = targets.TARGETS[name](3)
        outcomes.append([target.unchanged(n) for n in range(60)])
        target.close()
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seconds", [1.0, pytest.param(20.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [time.time_ns() // 10**12])  # others every quarter of an hour; a failure names it
def test_a_few_seconds_of_it(seed, seconds):
    done, wrong = fuzz.fuzz(sorted(targets.TARGETS), seed, 10**9, seconds, 2)
    assert not wrong, wrong[:3]
    assert sum(done.values()) > 50


BROKEN = """
import os, signal, sys, time
from tests.fuzz import __main__ as fuzz, targets

class Broken:
    def __init__(self, seed): pass
    def close(self): pass
    def run(self, number):
        if number == 3: raise ValueError("raw")
        if number == 5: os.kill(os.getpid(), signal.SIGSEGV)
        if number == 8: time.sleep(1000)

fuzz.PATIENCE = 1.0
targets.TARGETS["broken"] = Broken
if sys.argv[1:2] == ["--work"]:
    name, seed, start, stop, folder = sys.argv[2:]
    fuzz.work(name, int(seed), int(start), int(stop), folder)
else:
    fuzz.PROGRAM = [sys.executable, __file__]
    import json
    print(json.dumps(fuzz.fuzz(["broken"], 0, 12, 60.0, 1)))
"""


def test_what_is_wrong_is_found(tmp_path):
    """Cases that raise, die and hang are reported, and all the others are done."""
    (tmp_path / "broken.py").write_text(BROKEN)
    root = Path(__file__).parents[2]
    command = [sys.executable, tmp_path / "broken.py"]
    said = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(root)}, check=True
    ).stdout
    done, wrong = json.loads(said)
    messages = {number: what for _, number, what in wrong}
    assert done == {"broken": 12}
    assert messages.keys() == {3, 5, 8}
    assert "ValueError: raw" in messages[3]
    assert "ends with -11" in messages[5]
    assert "hangs" in messages[8]


def test_the_files_of_a_case_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "KEPT", tmp_path)
    file = fuzz.keep("storage", 0, 7)
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == [targets.ROWS]
