"""A study as a notebook shows it: its state, the answers, and a link to the report."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from replaylab.number_format import counted
from replaylab.study.plan import runs_of
from replaylab.study.report.sentences import budget_of

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy


def html_of(study: ReportedStudy) -> str:
    """Return the study's heading, the runs that are there, the answers and a link to the report, as HTML."""
    spec, present = study.spec, study.present
    lines = [f"<strong>{escape(spec.title or spec.name)}</strong>", escape(spec.question), _state(study)]
    if present:
        lines += map(escape, study.answers())
    report = study.folder / "report.html"
    if report.is_file():
        lines.append(f'<a href="{quote(report.as_posix())}">Report</a>')
    return "\n".join(f"<p>{line}</p>" for line in lines if line)


def _state(study: ReportedStudy) -> str:
    spec, present = study.spec, runs_of(study.present)
    failed = len(list((study.folder / "failures").glob("*.txt")))
    state = f"{present} of {spec.runs} runs are there"
    if failed:
        state += f"; {counted(failed, 'chunk')} failed, see {escape((study.folder / 'failures').as_posix())}"
    return f"{state}; {budget_of(spec)} each; folder {escape(study.folder.as_posix())}."
