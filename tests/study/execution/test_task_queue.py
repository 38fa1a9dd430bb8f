"""The queue and the coordinator, with an executor whose events a test writes."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replaylab.errors import SpecError, StorageError
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
    TrainTask,
)
from replaylab.study.execution.task_queue import MOST_RETRIES, TaskQueue
from replaylab.study.execution.worker.perform import perform
from replaylab.study.plan import Chunk
from replaylab.study.report import report
from replaylab.study.results import records
from replaylab.study.results.provenance import Machine, this_machine
from tests.study.execution.executor_conformance import TABLES, chunks
from tests.study.tiny import rows, study

HERE = this_machine()
FAR = Machine({**HERE.versions, "numpy": "1.0"}, {**HERE.hardware, "processor": "Far <1>", "cores": "96"})


class Scripted:
    """An executor that answers as a function says, the last submitted task first."""

    def __init__(self, answer: Callable[[Task], list[Event]], slots: int = 2) -> None:
        self.answer, self.slots = answer, slots
        self.in_flight: dict[int, Task] = {}
        self.submitted: list[Task] = []
        self.most = 0
        self.closed = False

    def submit(self, task: Task) -> int:
        self.submitted.append(task)
        self.in_flight[len(self.submitted)] = task
        self.most = max(self.most, len(self.in_flight))
        return len(self.submitted)

    def wait(self, handle: Handler) -> None:
        ticket, task = self.in_flight.popitem()
        for event in self.answer(task):
            handle(ticket, event)

    def close(self) -> None:
        self.closed = True


def done(task: Task, machine: Machine = HERE) -> Finished:
    """Perform a task here, and pretend that it was elsewhere."""
    if isinstance(task, CheckTask):
        return Finished(b"", 0.1, machine)
    return Finished(perform(task, lambda step: None).result, 0.1, machine)


def named(count: int) -> list[Chunk]:
    return chunks(seeds=count, strategies={"uniform": {"type": "uniform"}})


def run(executor: Executor, count: int, **more: Any) -> list[tuple[int, Event]]:
    seen: list[tuple[int, Event]] = []
    queue = TaskQueue(executor)
    for index, chunk in enumerate(named(count)):
        queue.put(TrainTask(chunk), lambda event, index=index: seen.append((index, event)), **more)
    queue.run()
    return seen


def test_a_fake_is_an_executor():
    assert isinstance(Scripted(lambda task: []), Executor)


def test_a_task_lost_with_its_machine_is_tried_again():
    outcome = Lost("The node went away", retriable=True)
    executor = Scripted(lambda task: [outcome])
    assert run(executor, 2) == [(1, outcome), (0, outcome)]
    assert len(executor.submitted) == 2 * (1 + MOST_RETRIES)


def test_what_ended_its_own_worker_is_not_tried_again():
    executor = Scripted(lambda task: [Lost("The worker process was killed by SIGKILL")])
    assert len(run(executor, 3)) == len(executor.submitted) == 3


def test_a_retry_goes_before_what_waits_and_its_end_counts():
    lost: list[Task] = []

    def answer(task: Task) -> list[Event]:
        if not lost:
            lost.append(task)
            return [Progress(5), Lost("gone", retriable=True)]
        return [Finished(b"", 1.0, HERE)]

    executor = Scripted(answer, slots=1)
    seen = run(executor, 3)
    assert [index for index, _ in seen] == [0, 0, 1, 2]
    assert executor.submitted[1] is executor.submitted[0]


def test_what_an_old_worker_says_late_is_ignored():
    def answer(task: Task) -> list[Event]:
        if len(executor.submitted) == 1:
            return [Lost("cut off", retriable=True), Progress(3), Finished(b"old", 1.0, FAR)]
        return [Finished(b"new", 1.0, HERE)]

    executor = Scripted(answer, slots=1)
    assert [event.result for _, event in run(executor, 1)] == [b"new"]


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_the_slots_are_full_and_no_fuller(slots):
    executor = Scripted(lambda task: [Finished(b"", 1.0, HERE)], slots)
    assert len(run(executor, 50)) == 50
    assert executor.most == min(slots, 50)


def test_a_study_on_two_machines_names_both(tmp_path, monkeypatch):
    """Rows are those of one machine; what ran where is written down, and told in the report."""
    flaky = {"left": 2}

    def answer(task: Task) -> list[Event]:
        if isinstance(task, TrainTask) and flaky["left"]:
            flaky["left"] -= 1
            return [Lost("The node 10.0.0.3 went away", retriable=True)]
        return [done(task, FAR if task.chunk.seeds == (0,) else HERE)]

    tiny, plain = study(tmp_path / "made", **TABLES), study(tmp_path / "plain", **TABLES)
    executor = Scripted(answer)
    assert tiny.run(executor=executor).complete
    assert executor.closed
    assert plain.run(executor=InProcess()).complete
    np.testing.assert_equal(rows(tiny), rows(plain))  # NaN included
    machine = tiny.record("machine")
    assert (machine["versions"], machine["hardware"]) == (HERE.versions, HERE.hardware)
    assert machine["others"] == {FAR.digest: {"versions": FAR.versions, "hardware": FAR.hardware}}
    for chunk in tiny.chunks:
        where = FAR if chunk.seeds == (0,) else HERE
        assert tiny.record(f"timing/{chunk.id}")["machine"] == where.digest
    assert "others" not in plain.record("machine")
    monkeypatch.setattr(report, "SECTIONS", ())  # the machines are in no section
    page = tiny.report(figure_files=False).read_text()
    assert "<dt>machine 1</dt>" in page
    assert "<dt>machine 2</dt><dd>processor Far &lt;1&gt;, cores 96, " in page
    assert "numpy 1.0: 2 runs</dd>" in page
    only = plain.report(figure_files=False).read_text()
    assert "<dt>machine 1</dt>" not in only
    assert f"<dt>cores</dt><dd>{HERE.hardware['cores']}</dd>" in only


def test_a_folder_run_on_one_machine_after_another_keeps_both(tmp_path):
    small = study(tmp_path, **TABLES | {"seeds": 2})
    assert small.run(executor=Scripted(lambda task: [done(task, FAR)])).complete
    assert study(tmp_path, **TABLES).run(executor=InProcess()).complete
    assert set(study(tmp_path, **TABLES).record("machine")["others"]) == {FAR.digest}


def test_the_record_of_an_earlier_machine_is_kept(tmp_path):
    tiny = study(tmp_path, **TABLES)
    tmp_path.joinpath("runs").mkdir()
    records.write(tmp_path / "machine.json", {"versions": FAR.versions, "hardware": FAR.hardware})
    assert tiny.run(executor=InProcess()).complete
    assert set(tiny.record("machine")["others"]) == {FAR.digest}
    assert tiny.record("machine")["hardware"] == HERE.hardware


def test_rows_that_cannot_be_written_stop_the_queue(tmp_path):
    """Tasks in flight are still handled; nothing new begins."""
    tiny = study(tmp_path, **TABLES | {"seeds": 6})

    def answer(task: Task) -> list[Event]:
        if isinstance(task, TrainTask) and len(trained(executor)) == 2:
            tiny.file_of(task.chunk).mkdir(exist_ok=True)
        return [done(task)]

    def trained(executor: Scripted) -> list[Task]:
        return [task for task in executor.submitted if isinstance(task, TrainTask)]

    executor = Scripted(answer)
    with pytest.raises(StorageError, match=r"cannot be written: "):
        tiny.run(executor=executor)
    assert len(trained(executor)) == 2
    assert executor.closed
    assert len(list((tmp_path / "failures").iterdir())) == 2


def test_a_split_chunk_is_reported_once_and_its_seeds_in_order(tmp_path):
    tiny = study(tmp_path, **TABLES | {"chunk_size": 3, "strategies": {"uniform": {"type": "uniform"}}})

    def answer(task: Task) -> list[Event]:
        seeds = task.chunk.seeds
        if isinstance(task, TrainTask) and seeds != (1,):
            return [Progress(1), Raised(f"Traceback of {seeds}", HERE)]
        return [done(task)]

    executor = Scripted(answer, slots=3)
    summary = tiny.run(executor=executor)
    assert [p.seeds for p in summary.ran] == [(1,)]
    (failure,) = summary.failures
    assert failure.chunk.seeds == (0, 2)
    assert failure.traceback == "Fails with seed 0, 2. Seed 0:\nTraceback of (0,)"
    assert (tmp_path / "failures" / f"{failure.chunk.id}.txt").read_text() == failure.traceback


def test_a_refusal_names_each_reason_once(tmp_path):
    strategies = {name: {"type": "uniform"} for name in ("uniform", "same", "lost", "fine")}
    tiny = study(tmp_path, **TABLES | {"strategies": strategies})

    def answer(task: Task) -> list[Event]:
        chunk = task.chunk
        refused = Raised("Traceback", HERE, "SpecError", f"{chunk.label} cannot be run: no luck.")
        by_strategy = {"lost": Lost("The worker process ended"), "fine": done(task)}
        return [by_strategy.get(chunk.strategy, refused)]

    with pytest.raises(SpecError) as caught:
        tiny.run(executor=Scripted(answer))
    first, _, third, _ = (chunk.label for chunk in tiny.chunks[:4])
    assert str(caught.value).splitlines() == [
        f"{first}, and 1 more like it, cannot be run: no luck.",
        f"{third} cannot be run: The worker process ended while this was checked.",
    ]
    assert not list(tmp_path.iterdir())


def test_a_record_of_machines_has_its_checksum(tmp_path):
    tiny = study(tmp_path, **TABLES | {"seeds": 1})
    assert tiny.run(executor=Scripted(lambda task: [done(task, FAR)])).complete
    record = json.loads((tmp_path / "machine.json").read_text())
    record["others"][FAR.digest]["hardware"]["cores"] = "97"
    (tmp_path / "machine.json").write_text(json.dumps(record))
    with pytest.raises(StorageError, match=r"machine\.json is damaged"):
        tiny.record("machine")
