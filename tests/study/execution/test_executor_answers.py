"""An executor of one's own that answers nonsense: a sentence that names it, nothing lost, no worker left behind."""

from dataclasses import replace

import pytest

from replaylab.errors import ConfigError, SpecError
from replaylab.study import InProcess
from replaylab.study.execution.executor import Finished, Lost, Progress, Raised
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
"""Two populations."""

OF_MEMBERS = {
    "`slots` of Odd must be a whole number, but got 'two'": Odd(slots="two"),
    "`slots` of Odd must be at least 0, but got -1": Odd(slots=-1),
    "`submit` of Odd must be a whole number that is never used again, but got None": Odd(ticket=None),
    "`submit` of Odd must be a whole number that is never used again, but got 0": Odd(ticket=0),
    r"`submit` of Odd must be a whole number that is never used again, but got \[\]": Odd(ticket=[]),
    "`wait` of Odd must tell a Progress, Finished, Raised or Lost, but got None": Odd(lambda event: None),
    "`wait` of Odd must tell a Progress, .* but got <class .*Finished'>": Odd(type),
    "`step` of the Progress that Odd tells must be a whole number, but got 'x'": Odd(lambda event: Progress("x")),
    "`result` of the Finished that Odd tells must be bytes, but got 'x'": Odd(rows_as(result="x")),
    "`seconds` of the Finished that Odd tells must be finite and not negative, but got nan": Odd(
        rows_as(seconds=float("nan"))
    ),
    "`machine` of the Finished that Odd tells must be a Machine, .* but got None": Odd(rows_as(machine=None)),
    "`traceback` of the Raised that Odd tells must be a string, but got None": Odd(lambda event: Raised(None, None)),
    "`reason` of the Lost that Odd tells must be a string, but got 3": Odd(lambda event: Lost(3)),
}


@pytest.mark.parametrize("message", OF_MEMBERS)
def test_an_answer_that_is_none_ends_the_run_with_a_sentence(message, tmp_path):
    made, odd = study(tmp_path, **FEW), OF_MEMBERS[message]
    with pytest.raises(ConfigError, match=f"^{message}"):
        made.run(executor=odd)
    assert odd.closed == 1
    assert len(made.run(executor=InProcess()).ran) == 2


@pytest.mark.parametrize("result", [b"", b"nonsense", b"PAR1" + bytes(40) + b"PAR1"])
def test_rows_that_are_none_are_failures_and_are_not_kept(result, tmp_path):
    made = study(tmp_path, **FEW)
    summary = made.run(executor=Odd(rows_as(result=result)))
    assert not summary.complete
    assert made.present == []
    for failure in summary.failures:
        assert failure.traceback.startswith("What the worker handed back are not the rows of this population: ")
    again = made.run(executor=InProcess())
    assert (len(again.ran), again.damaged) == (2, ())


def test_rows_of_another_population_are_a_failure(tmp_path):
    made, seen = study(tmp_path, **FEW), []

    def first(event):
        if isinstance(event, Finished) and event.result:
            seen.append(event.result)
            return replace(event, result=seen[0])
        return event

    summary = made.run(executor=Odd(first))
    assert (len(summary.ran), len(summary.failures)) == (1, 1)
    assert "it holds the rows of other settings than its name says" in summary.failures[0].traceback
    assert len(made.present) == 1


def test_a_clock_that_stands_still_is_no_matter(tmp_path):
    assert study(tmp_path, **FEW).run(executor=Odd(rows_as(seconds=0))).complete


def test_no_worker_just_now_is_no_matter(tmp_path):
    assert study(tmp_path, **FEW).run(executor=Odd(slots=0)).complete


def test_events_told_twice_count_once(tmp_path):
    class Echo(Odd):
        def wait(self, handle):
            self.inner.wait(lambda ticket, event: (handle(ticket, event), handle(ticket, event)))

    summary = study(tmp_path, **FEW).run(executor=Echo())
    assert (summary.complete, len(summary.ran)) == (True, 2)


@pytest.mark.parametrize("member", ["submit", "wait"])
def test_what_an_executor_raises_passes_through_and_it_is_closed(member, tmp_path):
    odd = Odd()

    def broken(*given):
        raise OSError("no route to host")

    setattr(odd, member, broken)
    with pytest.raises(OSError, match="no route to host"):
        study(tmp_path, **FEW).run(executor=odd)
    assert odd.closed == 1


def test_what_close_raises_loses_no_rows(tmp_path):
    made, odd = study(tmp_path, **FEW), Odd()

    def broken():
        raise OSError("no route to host")

    odd.close = broken
    with pytest.raises(OSError, match="no route to host"):
        made.run(executor=odd)
    assert len(made.run(executor=InProcess()).kept) == 2


@pytest.mark.parametrize("name", ["annotations", "no_such_error", "Any"])
def test_a_refusal_by_an_error_of_no_such_name_is_a_sentence(name, tmp_path):
    refused = Odd(lambda event: Raised("", event.machine, name, "it does not fit"))
    with pytest.raises(SpecError, match=r"^it does not fit$"):
        study(tmp_path, **FEW).run(executor=refused)


def test_a_speed_that_is_none_is_a_failing_cell(tmp_path):
    found = study(tmp_path, **FEW).estimate(executor=Odd(rows_as(result=b"fast")), seconds=0.1)
    assert {cell.speed for cell in found.failing} == {"What the worker handed back is no speed: b'fast'"}
    with pytest.raises(ConfigError, match="`slots` of Odd must be a whole number"):
        study(tmp_path, **FEW).estimate(executor=Odd(slots=None))
