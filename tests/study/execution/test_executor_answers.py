"""A custom executor that answers nonsense: a sentence that names it, nothing lost, no worker left behind."""

from dataclasses import replace

import pytest

from replaylab.errors import ConfigError, SpecError
from replaylab.study import InProcess
from replaylab.study.execution.executor import Finished, Raised
from tests.study.execution.executor_conformance import TABLES
from tests.study.tiny import study


class Odd:
    """Works in this process, and answers what `change` makes of an event; `answers` take the places of members."""

    def __init__(self, change=lambda event: event, **answers):
        self.inner, self.change, self.answers, self.closed = InProcess(), change, answers, 0

    @property
    def slots(self):
        return self.answers.get("slots", 2)

    def submit(self, task):
        ticket = self.inner.submit(task)
        return self.answers.get("ticket", ticket)

    def wait(self, handle):
        self.inner.wait(lambda ticket, event: handle(ticket, self.change(event)))

    def close(self):
        self.closed += 1
        self.inner.close()


def rows_as(**changed):
    """Change the results of trainings, and leave those of checks, which are empty."""
    return lambda event: replace(event, **changed) if isinstance(event, Finished) and event.result else event


FEW = TABLES | {"seeds": 1}
"""Two chunks."""


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Odd(ticket=0), "`submit` of Odd must return a ticket that no task in flight has, but got 0"),
        (Odd(lambda event: None), "`wait` of Odd must hand over a Progress, .* or Lost, but got None"),
        (Odd(type), "`wait` of Odd must hand over a Progress, .* but got <class .*Finished'>"),
    ],
)
def test_an_answer_that_loses_a_task_ends_the_run(odd, message, tmp_path):
    tiny = study(tmp_path, **FEW)
    with pytest.raises(ConfigError, match=f"^{message}"):
        tiny.run(executor=odd)
    assert odd.closed == 1
    assert len(tiny.run(executor=InProcess()).ran) == 2


@pytest.mark.parametrize("result", [b"", b"nonsense", b"PAR1" + bytes(40) + b"PAR1"])
def test_invalid_rows_are_failures_and_are_not_stored(result, tmp_path):
    tiny = study(tmp_path, **FEW)
    summary = tiny.run(executor=Odd(rows_as(result=result)))
    assert not summary.complete
    assert tiny.present == []
    for failure in summary.failures:
        assert failure.traceback.startswith("What the worker handed back are not the rows of this chunk: ")
    again = tiny.run(executor=InProcess())
    assert (len(again.ran), again.damaged) == (2, ())


def test_rows_of_another_chunk_are_a_failure(tmp_path):
    tiny, seen = study(tmp_path, **FEW), []

    def first(event):
        if isinstance(event, Finished) and event.result:
            seen.append(event.result)
            return replace(event, result=seen[0])
        return event

    summary = tiny.run(executor=Odd(first))
    assert (len(summary.ran), len(summary.failures)) == (1, 1)
    assert "it holds the rows of other settings than its name says" in summary.failures[0].traceback
    assert len(tiny.present) == 1


def test_a_clock_that_stands_still_is_no_matter(tmp_path):
    assert study(tmp_path, **FEW).run(executor=Odd(rows_as(seconds=0))).complete


def test_no_worker_just_now_is_no_matter(tmp_path):
    assert study(tmp_path, **FEW).run(executor=Odd(slots=0)).complete


def test_events_reported_twice_count_once(tmp_path):
    class Echo(Odd):
        def wait(self, handle):
            self.inner.wait(lambda ticket, event: (handle(ticket, event), handle(ticket, event)))

    summary = study(tmp_path, **FEW).run(executor=Echo())
    assert (summary.complete, len(summary.ran)) == (True, 2)


@pytest.mark.parametrize("member", ["submit", "wait"])
def test_what_an_executor_raises_passes_through_and_it_is_closed(member, tmp_path):
    odd = Odd()

    def broken(*arguments):
        raise OSError("no route to host")

    setattr(odd, member, broken)
    with pytest.raises(OSError, match="no route to host"):
        study(tmp_path, **FEW).run(executor=odd)
    assert odd.closed == 1


def test_what_close_raises_loses_no_rows(tmp_path):
    tiny, odd = study(tmp_path, **FEW), Odd()

    def broken():
        raise OSError("no route to host")

    odd.close = broken
    with pytest.raises(OSError, match="no route to host"):
        tiny.run(executor=odd)
    assert len(tiny.run(executor=InProcess()).skipped) == 2


@pytest.mark.parametrize("name", ["annotations", "no_such_error", "Any"])
def test_a_refusal_by_an_error_of_no_such_name_is_a_sentence(name, tmp_path):
    refused = Odd(lambda event: Raised("", event.machine, name, "it does not fit"))
    with pytest.raises(SpecError, match=r"cannot be run: it does not fit$"):
        study(tmp_path, **FEW).run(executor=refused)


def test_an_invalid_speed_is_a_failing_cell(tmp_path):
    estimate = study(tmp_path, **FEW).estimate(executor=Odd(rows_as(result=b"fast")), seconds=0.1)
    assert {cell.speed for cell in estimate.failing} == {"What the worker handed back is no speed: b'fast'"}
