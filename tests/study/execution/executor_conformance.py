"""Rules for every executor: inherit the class, and define how to create an executor."""

import threading
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from replaylab.study import InProcess
from replaylab.study.execution.executor import (
    CheckTask,
    Event,
    Executor,
    Finished,
    Handler,
    Lost,
    Progress,
    Raised,
    Task,
    TimeTask,
    TrainTask,
)
from replaylab.study.execution.reporter import Reporter
from replaylab.study.execution.worker.calibration import Speed
from replaylab.study.execution.worker.perform import perform
from replaylab.study.plan import Chunk
from replaylab.study.results.provenance import Machine
from replaylab.study.results.store import damage
from tests.study.tiny import rows, study

TABLES = {
    "environments": ["FrozenLake-v1"],
    "seeds": 3,
    "chunk_size": 1,
    "budget": {"steps": 100},
    "learners": {"q": {"type": "q_learning", "batch_size": 4}},
}
NETWORKS = {"budget": {"steps": 100}, "evaluation": {"every": 50, "episodes": 1}}
HOSTILE = "tests.study.execution.hostile"
FAILING = "tests.study.failing"
MEMBERS = {
    Progress: {"step": int},
    Finished: {"result": bytes, "seconds": float, "machine": Machine, "tape": bytes},
    Raised: {"traceback": str, "machine": Machine, "refused": str | None, "message": str},
    Lost: {"reason": str, "retriable": bool, "machine": Machine | None},
}
"""Of what an executor hands over: nothing checks it while a study runs."""


def chunks(**changes: Any) -> list[Chunk]:
    return study("unused", **TABLES | changes).chunks


def finish(executor: Executor, tasks: list[Task], handle: Handler = lambda *_: None) -> list[Event]:
    """Perform tasks, as many at a time as there are slots, and return how each ended, in the tasks' order."""
    ends: dict[int, Event] = {}
    order: list[int] = []
    waiting = list(tasks)

    def take(ticket: int, event: Event) -> None:
        assert ticket in order
        assert ticket not in ends, "an event after the end"
        for name, kind in MEMBERS[type(event)].items():
            assert isinstance(getattr(event, name), kind)
        if not isinstance(event, Progress):
            ends[ticket] = event
        handle(ticket, event)

    while len(ends) < len(tasks):
        while waiting and len(order) - len(ends) < executor.slots:
            order.append(executor.submit(waiting.pop(0)))
        executor.wait(take)
    assert len(set(order)) == len(order)
    return [ends[ticket] for ticket in order]


@cache
def bytes_here() -> dict[str, bytes]:
    """Return the files of `chunks`, made in this process, by id."""
    return {p.id: perform(TrainTask(p), lambda step: None).result for p in chunks()}


@cache
def files_here() -> dict[str, bytes]:
    """Return the files of a study of networks, made in this process, by id."""
    with TemporaryDirectory() as folder:
        plain = study(Path(folder), **NETWORKS)
        assert plain.run(executor=InProcess()).complete
        return {chunk.id: plain.file_of(chunk).read_bytes() for chunk in plain.chunks}


@cache
def rows_here() -> dict[str, list[Any]]:
    """Return the rows of `TABLES`, made in this process."""
    with TemporaryDirectory() as folder:
        plain = study(Path(folder), **TABLES)
        assert plain.run(executor=InProcess()).complete
        return rows(plain)


PICKY = NETWORKS | {"environments": [f"{FAILING}:Picky-v0"], "seeds": 6, "strategies": {"uniform": {"type": "uniform"}}}


@cache
def picky_here() -> tuple[tuple[int, ...], dict[str, list[Any]]]:
    """Return the seeds that fail, each run alone in this process, and the rows of the others."""
    with TemporaryDirectory() as folder:
        alone = study(Path(folder), **PICKY, chunk_size=1)
        bad = {f.chunk.seeds[0] for f in alone.run(executor=InProcess()).failures}
        return tuple(sorted(bad)), rows(alone)


class Kept:
    """An executor around another that a study does not close, so that the next test need not start workers again."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.closed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def slots(self) -> int:
        return self.inner.slots

    def submit(self, task: Task) -> int:
        return self.inner.submit(task)

    def wait(self, handle: Handler) -> None:
        self.inner.wait(handle)

    def close(self) -> None:
        self.closed += 1


class Counted:
    """An executor around another that counts what is in flight."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.most = self.in_flight = self.submitted = 0

    @property
    def slots(self) -> int:
        return self.inner.slots

    def submit(self, task: Task) -> int:
        self.submitted += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        return self.inner.submit(task)

    def wait(self, handle: Handler) -> None:
        def take(ticket: int, event: Event) -> None:
            self.in_flight -= not isinstance(event, Progress)
            handle(ticket, event)

        self.inner.wait(take)

    def close(self) -> None:
        self.in_flight = 0
        self.inner.close()


class ExecutorConformance:
    """The sampling distributions of `replaylab.study.execution.executor.Executor`."""

    def make(self) -> Executor:
        """Return a new executor, of two slots where it can have several."""
        raise NotImplementedError

    def kill_a_worker(self, executor: Executor) -> None:
        """Kill one that performs a task, or skip the test where that cannot be."""
        raise NotImplementedError

    def make_another(self) -> Executor:
        """Return one of another kind."""
        return InProcess()

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        """One for all tests: its workers take seconds to start, and it works again after `close`."""
        created = cls().make()
        yield created
        created.close()

    def test_it_is_one(self, executor):
        assert isinstance(executor, Executor)
        assert isinstance(executor.slots, int)
        assert executor.slots >= 1

    def test_a_chunk_gives_the_bytes_it_gives_here_in_any_order(self, executor, tmp_path):
        planned, expected = chunks(), bytes_here()
        for order in (planned, planned[::-1]):
            for chunk, event in zip(order, finish(executor, [TrainTask(p) for p in order]), strict=True):
                assert isinstance(event, Finished)
                assert isinstance(event.machine, Machine)
                assert event.seconds > 0
                assert event.result == expected[chunk.id]
                file = tmp_path / f"{chunk.id}.parquet"
                file.write_bytes(event.result)
                assert damage(file) is None

    def test_a_study_has_the_same_rows_as_with_one_worker(self, executor, tmp_path):
        tiny, shared = study(tmp_path, **NETWORKS), Kept(executor)
        assert tiny.run(executor=shared).complete
        assert shared.closed == 1
        assert files_here().keys() == {chunk.id for chunk in tiny.chunks}
        for chunk in tiny.chunks:
            assert tiny.file_of(chunk).read_bytes() == files_here()[chunk.id]
            assert tiny.record(f"timing/{chunk.id}")["machine"] is not None

    def test_progress_grows_up_to_the_end(self, executor):
        (long,) = chunks(strategies={"uniform": {"type": "uniform"}}, seeds=1, budget={"steps": 2_000})
        seen: list[int] = []

        def take(_: int, event: Event) -> None:
            if isinstance(event, Progress):
                seen.append(event.step)

        (end,) = finish(executor, [TrainTask(long)], take)
        assert isinstance(end, Finished)
        assert seen
        assert seen == sorted(set(seen))
        assert seen[-1] <= 2_000

    def test_checks_and_timings_are_tasks_too(self, executor):
        lake, *_ = chunks()
        pendulum, *_ = chunks(environments=["Pendulum-v1"])
        sound, refused, timed = finish(executor, [CheckTask(lake), CheckTask(pendulum), TimeTask(lake, 0.05)])
        assert isinstance(sound, Finished)
        assert sound.result == b""
        assert isinstance(refused, Raised)
        assert refused.refused == "SpecError"
        assert "needs Discrete" in refused.message or "need Discrete" in refused.message
        assert isinstance(timed, Finished)
        assert Speed.model_validate_json(timed.result).step > 0

    def test_an_error_keeps_its_traceback_and_the_next_task_runs(self, executor):
        fails, *_ = chunks(environments=[f"{FAILING}:Fails-v0"], learners={"dqn": {"type": "dqn"}})
        exits, *_ = chunks(environments=[f"{HOSTILE}:Exits-v0"], learners={"dqn": {"type": "dqn"}})
        lake, *_ = chunks()
        broke, left, done = finish(executor, [TrainTask(fails), TrainTask(exits), TrainTask(lake)])
        assert isinstance(broke, Raised)
        assert broke.traceback.startswith("Traceback (most recent call last):")
        assert "failing.py" in broke.traceback
        assert broke.traceback.endswith("RuntimeError: it broke\n")
        assert broke.refused is None
        assert isinstance(left, Raised)
        assert left.traceback.endswith("SystemExit: 0\n")
        assert isinstance(done, Finished)

    def test_a_bad_seed_is_reported_and_the_others_are_there(self, executor, tmp_path):
        bad, of_the_others = picky_here()
        assert 0 < len(bad) < 6
        tiny = study(tmp_path, **PICKY, chunk_size=6)
        (failure,) = tiny.run(executor=Kept(executor)).failures
        assert failure.chunk.seeds == bad
        assert failure.traceback.startswith(f"Fails with seed {', '.join(map(str, bad))}. Seed {min(bad)}:\n")
        assert failure.traceback.endswith("RuntimeError: bad luck\n")
        np.testing.assert_equal(rows(tiny), of_the_others)
        again = tiny.run(executor=Kept(executor))
        assert again.ran == ()
        assert [f.chunk.seeds for f in again.failures] == [failure.chunk.seeds]
        assert [f.stem for f in (tmp_path / "failures").iterdir()] == [failure.chunk.id]

    def test_what_libraries_print_breaks_nothing(self, executor, monkeypatch):
        monkeypatch.setattr("builtins.input", lambda: None)  # of this process, where pytest has it raise
        loud, calm = (
            chunks(environments=[f"{HOSTILE}:{env}-v0"], learners={"dqn": {"type": "dqn"}}, seeds=1)[0]
            for env in ("Prints", "Calm")
        )
        reported, silent = finish(executor, [TrainTask(loud), TrainTask(calm)])
        assert isinstance(reported, Finished)
        assert isinstance(silent, Finished)
        assert abs(len(reported.result) - len(silent.result)) < 200  # the names differ

    def test_no_more_than_its_slots_are_in_flight(self, executor, tmp_path):
        counted = Counted(Kept(executor))
        tiny = study(tmp_path, **TABLES | {"seeds": 5})
        assert tiny.run(executor=counted).complete
        assert counted.submitted == 10 + 2  # and a check of each strategy
        assert counted.most == executor.slots

    def test_events_come_in_the_calling_thread(self, executor):
        threads: set[int] = set()
        finish(executor, [TrainTask(p) for p in chunks()[:2]], lambda *_: threads.add(threading.get_ident()))
        assert threads == {threading.get_ident()}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(RuntimeError, marks=pytest.mark.slow)])
    def test_an_interrupt_passes_and_it_works_again_after_close(self, executor, error):
        (long, *_), lake = chunks(budget={"steps": 10_000_000}), chunks()[0]

        def interrupt(ticket: int, event: Event) -> None:
            raise error("enough")

        old = executor.submit(TrainTask(long))
        heard: list[BaseException] = []
        while not heard:
            try:
                executor.wait(interrupt)
            except error as caught:
                heard.append(caught)
        assert str(heard[0]) == "enough"
        executor.close()
        seen: set[int] = set()
        (event,) = finish(executor, [TrainTask(lake)], lambda ticket, _: seen.add(ticket))
        assert isinstance(event, Finished)
        assert old not in seen

    def test_an_interrupted_study_goes_on_elsewhere(self, executor, tmp_path):
        class Impatient(Reporter):
            done = 0

            def finished(self, chunk, seconds):
                self.done += 1
                if self.done == 2:
                    raise KeyboardInterrupt

        tiny = study(tmp_path, **TABLES)
        with pytest.raises(KeyboardInterrupt):
            tiny.run(executor=executor, reporter=Impatient())
        present = len(tiny.present)
        assert present >= 2
        assert len(tiny.run(executor=self.make_another()).ran) == 6 - present
        np.testing.assert_equal(rows(tiny), rows_here())

    def test_a_killed_worker_loses_its_task_and_no_other(self, executor):
        (long, *_), lakes = chunks(budget={"steps": 10_000_000}), chunks()
        killed: list[int] = []

        def kill(ticket: int, event: Event) -> None:
            if isinstance(event, Progress) and not killed:
                killed.append(ticket)
                self.kill_a_worker(executor)

        lost, *others = finish(executor, [TrainTask(long), *map(TrainTask, lakes)], kill)
        assert isinstance(lost, Lost)
        assert not lost.reason.endswith(".")
        assert all(isinstance(event, Finished) for event in others)
