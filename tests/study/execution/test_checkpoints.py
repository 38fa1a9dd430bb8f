"""A killed chunk continues from its last checkpoint: the rows are those of an unbroken run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from replaylab.study import InProcess, Study
from replaylab.study.execution.reporter import Reporter
from replaylab.study.execution.worker import checkpoints
from replaylab.study.execution.worker import perform as worker
from tests.study.execution.executor_conformance import Counted
from tests.study.execution.test_kills import kill_all
from tests.study.execution.test_study_run import start, wait_for
from tests.study.tiny import rows, study

DEEP = {"strategies": {"prioritized": {"type": "prioritized"}}, "seeds": 2, "baseline": "prioritized"}
EPISODES = {
    "environments": ["FrozenLake-v1"],
    "seeds": 2,
    "strategies": {"uniform": {"type": "uniform"}},
    "budget": {"episodes": 90},
    "evaluation": {"every": 30, "episodes": 2},
    "logging": {"every": 15},
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
}
OFTEN = 70
"""Turns between checkpoints."""


class Turns:
    """A clock that advances by one at each reading; a chunk reads it once a turn."""

    now = 0

    def perf_counter(self) -> int:
        self.now += 1
        return self.now


def count_turns(monkeypatch) -> None:
    """Have checkpoints kept every so many turns, and all progress reported, however fast the machine is."""
    monkeypatch.setattr(checkpoints, "time", Turns())
    monkeypatch.setattr(worker, "_REPORT_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _turns(monkeypatch):
    count_turns(monkeypatch)


class Spy(Reporter):
    """Says how far the chunks are; ends the run when one has come to a step."""

    def __init__(self, stop: float = np.inf) -> None:
        self.stop, self.seen = stop, {}

    def progress(self, chunk, step):
        self.seen.setdefault(chunk.id, []).append(step)
        if step >= self.stop:
            raise KeyboardInterrupt


def kept_at(tiny: Study) -> dict[str, int]:
    """Return the steps at which chunks were kept, by id."""
    steps = {}
    for file in tiny.folder.glob("checkpoints/*/run.json"):
        steps[file.parent.name] = json.loads(file.read_text())["steps"]
    return steps


def unbroken(folder: Path, **changes) -> dict[str, list]:
    tiny = study(folder, **changes)
    assert tiny.run(executor=InProcess(), checkpoint_every=None).complete
    return rows(tiny)


LONG = DEEP | {"budget__steps": 900, "evaluation__every": 300}


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory):
    """The rows of an unbroken run of `LONG`."""
    return unbroken(tmp_path_factory.mktemp("unbroken"), **LONG)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """The folder of a run of `LONG` that was interrupted when its chunk had come to a third."""
    tiny = study(tmp_path_factory.mktemp("broken-off"), **LONG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "_REPORT_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            tiny.run(executor=InProcess(), reporter=Spy(300), checkpoint_every=0.02)
    return tiny.folder


@pytest.fixture
def interrupted(broken_off, tmp_path):
    """A copy of that study."""
    return study(shutil.copytree(broken_off, tmp_path / "made"), **LONG)


def test_what_was_interrupted_goes_on_and_leaves_no_checkpoint(interrupted, long_rows):
    tiny = interrupted
    before = kept_at(tiny)
    assert before
    again = Spy()
    assert tiny.run(executor=InProcess(), reporter=again, checkpoint_every=OFTEN).complete
    for name, steps in before.items():
        assert 0 < steps <= min(again.seen[name])
    np.testing.assert_equal(rows(tiny), long_rows)
    assert not (tiny.folder / "checkpoints").exists()


def test_the_time_before_the_break_counts(interrupted):
    tiny = interrupted
    (name,) = kept_at(tiny)
    state = tiny.folder / "checkpoints" / name / json.loads(_manifest(tiny, name).read_text())["files"]["state"]["file"]
    with np.load(state) as arrays:
        before = float(arrays["recorder/trained_seconds"])
    assert before > 0
    tiny.run(executor=InProcess(), checkpoint_every=1_000.0)
    assert kept_at(tiny) == {}
    assert tiny.record(f"timing/{name}")["seconds"] > before


def test_episodes_of_which_some_seeds_have_had_theirs(tmp_path):
    expected = unbroken(tmp_path / "unbroken", **EPISODES)
    tiny = study(tmp_path / "made", **EPISODES)
    for stop in (30, 60):
        with pytest.raises(KeyboardInterrupt):
            tiny.run(executor=InProcess(), reporter=Spy(stop), checkpoint_every=OFTEN)
        assert kept_at(tiny)
    assert tiny.run(executor=InProcess(), checkpoint_every=OFTEN).complete
    np.testing.assert_equal(rows(tiny), expected)


@pytest.mark.parametrize("damage", ["manifest", "state", "buffer"])
def test_a_damaged_checkpoint_is_left_and_the_chunk_begins_again(interrupted, damage, long_rows):
    tiny = interrupted
    (name,) = kept_at(tiny)
    manifest = _manifest(tiny, name)
    listed = json.loads(manifest.read_text())
    folder = manifest.parent
    if damage == "buffer":
        file = max((folder / listed["buffer"]).iterdir(), key=lambda path: path.stat().st_size)
    else:
        file = manifest if damage == "manifest" else folder / listed["files"]["state"]["file"]
    file.write_bytes(file.read_bytes()[:-9])
    again = Spy()
    assert tiny.run(executor=InProcess(), reporter=again, checkpoint_every=3 * OFTEN).complete
    assert min(again.seen[name]) < listed["steps"]
    np.testing.assert_equal(rows(tiny), long_rows)


def test_an_executor_elsewhere_is_given_no_folder(tmp_path):
    folders = []

    class Elsewhere(Counted):
        def submit(self, task):
            folders.append(getattr(task, "checkpoints", None))
            return super().submit(task)

    tiny = study(tmp_path, **DEEP)
    tiny.run(executor=Elsewhere(InProcess()), checkpoint_every=0.0)
    assert set(folders) == {None}


def test_what_raises_keeps_no_checkpoint(tmp_path):
    tiny = study(tmp_path, environments=["tests.study.failing:FailsLater-v0"], seeds=1, chunk_size=1)
    assert not tiny.run(executor=InProcess(), checkpoint_every=0.0).complete
    assert not (tmp_path / "checkpoints").exists()


def test_a_disk_that_takes_no_checkpoint_changes_nothing(tmp_path):
    expected = unbroken(tmp_path / "unbroken", **DEEP)
    tiny = study(tmp_path / "made", **DEEP)
    tiny.folder.mkdir()
    (tiny.folder / "checkpoints").write_text("in the way")
    assert tiny.run(executor=InProcess(), checkpoint_every=0.0).complete
    np.testing.assert_equal(rows(tiny), expected)


def _manifest(tiny: Study, name: str) -> Path:
    return tiny.folder / "checkpoints" / name / "run.json"


@pytest.mark.slow
@pytest.mark.no_sanitizer
def test_kills_between_checkpoints(tmp_path):
    """`kill -9` of a study and its workers."""
    longer = DEEP | {"budget__steps": 40_000, "evaluation__every": 20_000}
    tiny, last = study(tmp_path / "made", **longer), 0
    for _ in range(2):
        run = start(tiny.folder, 0.2, **longer)
        wait_for(lambda run=run, last=last: sum(kept_at(tiny).values()) > last or run.poll() is not None)
        assert run.poll() is None, "the study was too short to be killed"
        kill_all(run)
        ((name, last),) = kept_at(tiny).items()
    again = Spy()
    assert tiny.run(executor=InProcess(), reporter=again, checkpoint_every=OFTEN).complete
    assert 0 < last <= min(again.seen[name])
    np.testing.assert_equal(rows(tiny), unbroken(tmp_path / "unbroken", **longer))
