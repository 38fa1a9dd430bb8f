"""Strategies that learn from another one's draws: what they draw, who waits for whom, and what stays in the folder."""

import copy

import numpy as np
import pytest

from replaylab.errors import SpecError, StorageError
from replaylab.research.tape_file import TapeReader
from replaylab.study import InProcess, Study
from replaylab.study.execution.executor import CheckTask, Finished, Lost, TrainTask
from replaylab.study.execution.result_writer import ResultWriter
from replaylab.study.execution.worker.perform import perform
from replaylab.study.results.folder import StudyFolder
from replaylab.study.results.store import open_rows
from tests.study.execution.test_checkpoints import OFTEN, Spy, count_turns, kept_at
from tests.study.tiny import pretend, rows, run_here, study

DRAWN = {"type": "prioritized", "beta": 0.0}
PLACEBO = {"type": "tape", "of": "td"}
TAPED = {
    "strategies": {"placebo": PLACEBO, "td": DRAWN},
    "baseline": "td",
    "measures__every": 0,
    "budget__steps": 100,
}
LONG = TAPED | {"seeds": 3, "chunk_size": 3, "budget__steps": 600, "evaluation__every": 300}


def taped(folder, **changes):
    return study(folder, **copy.deepcopy(TAPED) | changes)


def ids_of(tape):
    reader = TapeReader(tape)
    return np.stack([reader.ids(k) for k in range(reader.draws)])


def drawn_by(recorded, chunk, tmp_path):
    """Return the draws of a chunk of a study: it is trained once more, and recorded."""
    tape = StudyFolder(recorded.spec, recorded.folder).tape_file(chunk.tape_of)
    again = perform(TrainTask(chunk, record=True, tape=str(tape)), lambda step: None)
    copied = tmp_path / recorded.file_of(chunk).name
    copied.write_bytes(again.result)
    (tmp_path / "again.tape").write_bytes(again.tape)
    numbers = [open_rows([file]).fetchnumpy() for file in (recorded.file_of(chunk), copied)]
    np.testing.assert_equal(numbers[0], numbers[1])
    return ids_of(tmp_path / "again.tape")


class TestWhatIsDrawn:
    def test_through_a_study_that_is_interrupted_twice(self, tmp_path, monkeypatch):
        """In the recorded runs, and in those that learn from them."""
        count_turns(monkeypatch)
        unbroken = run_here(tmp_path / "whole", **LONG)
        assert not (unbroken.folder / "tapes").exists()

        monkeypatch.setattr(ResultWriter, "drop_tape", lambda self, chunk: None)
        tiny = study(tmp_path / "made", **LONG)
        placebo, source = tiny.chunks
        assert source == placebo.tape_of
        for each in (source, placebo):
            with pytest.raises(KeyboardInterrupt):
                tiny.run(executor=InProcess(), reporter=Until(each.id, 400), checkpoint_every=OFTEN)
            assert list(kept_at(tiny)) == [each.id]
        again = Spy()
        assert tiny.run(executor=InProcess(), reporter=again).complete
        assert list(again.seen) == [placebo.id]
        assert min(again.seen[placebo.id]) > 100

        np.testing.assert_equal(rows(tiny), rows(unbroken))
        recorded = ids_of(StudyFolder(tiny.spec, tiny.folder).tape_file(source))
        assert recorded.shape == (600 - 20 + 1, 3, 8)
        np.testing.assert_array_equal(drawn_by(tiny, placebo, tmp_path), np.roll(recorded, -1, axis=1))
        assert not (recorded[:, 0] == recorded[:, 1]).all()

    @pytest.mark.slow
    def test_by_bins_through_a_study_that_is_interrupted(self, tmp_path, monkeypatch):
        """A checkpoint keeps the ends of episodes, and how many rows came from other bins."""
        count_turns(monkeypatch)
        binned = LONG | {"strategies": {"placebo": {"type": "by_steps_to_end", "of": "td"}, "td": DRAWN}}
        unbroken = run_here(tmp_path / "whole", **binned | {"measures__every": 200})
        tiny = study(tmp_path / "made", **binned | {"measures__every": 200})
        for chunk in reversed(tiny.chunks):
            with pytest.raises(KeyboardInterrupt):
                tiny.run(executor=InProcess(), reporter=Until(chunk.id, 400), checkpoint_every=OFTEN)
            assert list(kept_at(tiny)) == [chunk.id]
        assert tiny.run(executor=InProcess()).complete
        np.testing.assert_equal(rows(tiny), rows(unbroken))
        columns = rows(unbroken)
        shares = [v for v, m in zip(columns["value"], columns["metric"], strict=True) if m == "replay/moved_share"]
        assert len(shares) == 9
        assert 0 < max(shares) < 0.5

    def test_executors_without_a_common_disk_give_the_same_rows(self, tmp_path):
        here, elsewhere = taped(tmp_path / "here"), taped(tmp_path / "there")
        far = Far()
        assert here.run(executor=InProcess()).complete
        assert elsewhere.run(executor=far).complete
        np.testing.assert_equal(rows(here), rows(elsewhere))
        trained = [task for task in far.seen if isinstance(task, TrainTask)]
        assert [(t.record, type(t.tape)) for t in trained] == [(True, type(None)), (False, bytes)] * 2
        assert not (elsewhere.folder / "tapes").exists()

    @pytest.mark.slow
    def test_in_worker_processes(self, tmp_path):
        tape_study = taped(tmp_path)
        assert tape_study.run(workers=2).complete
        assert len(tape_study.present) == 4


class Until(Spy):
    """Ends the run when one chunk has come to a step."""

    def __init__(self, id_, stop):
        super().__init__(stop)
        self.id = id_

    def progress(self, chunk, step):
        super().progress(chunk, step if chunk.id == self.id else 0)


class Far(InProcess):
    """Another machine."""

    shares_disk = False

    def __init__(self):
        super().__init__()
        self.seen = []

    def submit(self, task):
        self.seen.append(task)
        return super().submit(task)


class Failing(Far):
    """Loses the workers of what draws itself."""

    def wait(self, handle):
        def reported(ticket, event):
            lost = isinstance(event, Finished) and isinstance(self.seen[-1], TrainTask) and self.seen[-1].record
            handle(ticket, Lost("The node burnt down") if lost else event)

        super().wait(reported)


class TestWhoWaits:
    def test_a_lost_recording_fails_those_that_wait(self, tmp_path):
        tape_study = taped(tmp_path, seeds=2)
        done = tape_study.run(executor=Failing())
        assert [f.chunk.strategy for f in done.failures] == ["td", "placebo"]
        assert "which were not recorded" in done.failures[1].traceback
        assert tape_study.run(executor=InProcess()).complete

    def test_where_rows_cannot_be_written_nothing_more_begins(self, tmp_path):
        """The tape of what draws was written before its rows could not be."""
        tape_study = taped(tmp_path, seeds=2)

        class Full(Far):
            def submit(self, task):
                if isinstance(task, TrainTask):
                    tape_study.file_of(task.chunk).mkdir()
                return super().submit(task)

        executor = Full()
        with pytest.raises(StorageError, match="cannot be written"):
            tape_study.run(executor=executor)
        assert [task.record for task in executor.seen if isinstance(task, TrainTask)] == [True]

    def test_a_tape_that_is_gone_is_recorded_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ResultWriter, "drop_tape", lambda self, chunk: None)  # as where a run was killed
        tape_study = taped(tmp_path, seeds=2)
        assert tape_study.run(executor=InProcess()).complete
        before = rows(tape_study)
        placebo, source = tape_study.chunks
        tape_study.file_of(placebo).unlink()
        tape = StudyFolder(tape_study.spec, tape_study.folder).tape_file(source)
        content = bytearray(tape.read_bytes())
        content[len(content) // 2] ^= 1
        for damage in (tape.unlink, lambda: tape.write_bytes(content)):
            damage()
            executor = Far()
            assert tape_study.run(executor=executor).complete
            assert [t.record for t in executor.seen if isinstance(t, TrainTask)] == [True, False]
            np.testing.assert_equal(rows(tape_study), before)
            tape_study.file_of(placebo).unlink()
        executor = Far()
        assert tape_study.run(executor=executor).complete
        assert [t.record for t in executor.seen if isinstance(t, TrainTask)] == [False]

    def test_more_seeds_keep_what_is_there(self, tmp_path):
        small = taped(tmp_path, seeds=2)
        assert small.run(executor=InProcess()).complete
        larger = taped(tmp_path, seeds=7, chunk_size=4)
        assert [p.seeds for p in larger.chunks if p.tape_of] == [(0, 1), (2, 3), (4, 5, 6)]
        executor = Far()
        assert larger.run(executor=executor).complete
        assert len([t for t in executor.seen if isinstance(t, TrainTask)]) == 4

    def test_a_seed_that_was_left_alone_is_refused(self, tmp_path):
        """Before anything is trained: of 7 seeds in fives two are there, which the eighth cannot join."""
        pretend(taped(tmp_path, seeds=7, chunk_size=5), 0.0)
        executor = Far()
        with pytest.raises(SpecError, match=r"placebo · seed 7 must learn from .* another seed .*; run more `seeds`"):
            taped(tmp_path, seeds=8, chunk_size=5).run(executor=executor)
        assert executor.seen == []
        grown = taped(tmp_path, seeds=9, chunk_size=5)
        assert grown.run(executor=executor).complete
        assert [p.seeds for p in grown.present if p.tape_of] == [(0, 1, 2, 3, 4), (5, 6), (7, 8)]

    def test_seeds_that_were_trained_alone_are_refused(self, tmp_path):
        """As where one of them raised; the files that are in the way are named, and without them all is well."""
        tape_study = taped(tmp_path, seeds=2)
        drawn = next(p for p in tape_study.chunks if p.tape_of is None)
        alone = taped(tmp_path, seeds=2, chunk_size=1, strategies={"td": DRAWN})
        pretend(alone, 0.0)
        with pytest.raises(SpecError, match=r"seed 0 must learn .* remove .*\.parquet from its runs/") as refused:
            tape_study.run(executor=InProcess())
        for chunk in alone.chunks:
            assert chunk.prefix == drawn.prefix
            assert tape_study.file_of(chunk).name in str(refused.value)
            tape_study.file_of(chunk).unlink()
        assert tape_study.run(executor=InProcess()).complete

    def test_trials_need_no_tape(self, tmp_path):
        tape_study = taped(tmp_path)
        assert tape_study.estimate(executor=InProcess(), seconds=0.0).failing == ()
        (placebo, *_) = tape_study.chunks
        perform(CheckTask(placebo), lambda step: None)
        with pytest.raises(Exception, match="must be given the tape that it learns from"):
            perform(TrainTask(placebo), lambda step: None)


class TestIdentity:
    def test_it_depends_on_what_is_replayed(self, tmp_path):
        def placebo(**changes):
            return next(p for p in taped(tmp_path, **changes).chunks if p.tape_of).id

        other = {"placebo": PLACEBO, "td": DRAWN | {"alpha": 0.5}}
        assert placebo() != placebo(strategies=other)

    def test_a_folder_that_is_read_again_knows_it(self, tmp_path):
        tape_study = taped(tmp_path, seeds=2)
        tape_study.run(executor=InProcess())
        assert [p.id for p in Study.from_folder(tmp_path).present] == [p.id for p in tape_study.chunks]


REFUSED = [
    ({"strategies__placebo": {"type": "tape", "of": "tdd"}}, "must name a strategy that is no tape itself .* 'tdd'"),
    ({"strategies__placebo": {"type": "tape", "of": "placebo"}}, "must name a strategy that is no tape itself"),
    ({"strategies__placebo": {"type": "tape"}}, "must name a strategy that is no tape itself"),
    ({"strategies__placebo": PLACEBO | {"budget": {"steps": 200}}}, "budget` must be that of 'td'"),
    ({"strategies__placebo": PLACEBO | {"learner": {"batch_size": 4}}}, "learner` must be that of 'td'"),
    (
        {"environments": ["CartPole-v1", "Acrobot-v1"], "strategies__td": DRAWN | {"environments": ["Acrobot-v1"]}},
        "environments` must be among those of 'td'",
    ),
    ({"seeds": 3}, "but 3 seeds in chunks of 2 leave a chunk of one; change `seeds` or `chunk_size`"),
    ({"budget": {"episodes": 200}}, "must have a budget in steps"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_cannot_be_replayed_is_refused(tmp_path, changes, words):
    with pytest.raises(SpecError, match=words):
        taped(tmp_path, **changes)
