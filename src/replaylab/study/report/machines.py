"""The machines that a study ran on, and the computing time, as rows of (name, text)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from replaylab.number_format import counted
from replaylab.study.results.durations import duration
from replaylab.study.results.provenance import Machine
from replaylab.study.results.records import machines_of

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy


def used(study: ReportedStudy) -> list[tuple[str, str]]:
    """Return versions and hardware; if chunks ran on several machines, a row for each, with how it differs."""
    known = machines_of(study.record("machine"))
    if not known:
        return []
    latest = next(iter(known))
    runs: Counter[str] = Counter()
    for chunk in study.present:
        runs[study.record(f"timing/{chunk.id}").get("machine") or latest] += len(chunk.seeds)
    digests = [digest for digest in known if runs[digest]] or [latest]
    versions = known[digests[0]].versions
    if len(digests) == 1:
        return [*versions.items(), *known[digests[0]].hardware.items()]
    rows = [(f"machine {i}", _in_a_line(known[digest], versions, runs[digest])) for i, digest in enumerate(digests, 1)]
    return [*versions.items(), *rows]


def _in_a_line(machine: Machine, versions: dict[str, str], runs: int) -> str:
    """Return a machine's hardware, the versions that are not those of the first, and how much ran there."""
    other = {name: which for name, which in machine.versions.items() if versions.get(name) != which}
    table = ", ".join(f"{name} {value}" for name, value in [*machine.hardware.items(), *other.items()])
    return f"{table}: {counted(runs, 'run')}"


def computing_time(study: ReportedStudy) -> list[tuple[str, str]]:
    """Return the computing time of the chunks with results, as a row; empty where it was not recorded."""
    times = [record for p in study.present if (record := study.record(f"timing/{p.id}"))]
    if not times:
        return []
    seconds = sum(t["seconds"] for t in times)
    steps = sum(t.get("environment_steps", t.get("episodes", 0)) for t in times)
    pace = steps / max(seconds, 1e-3)
    text = f"{duration(seconds)} of one core for {steps:,} {study.spec.budget.counted}: {pace:,.0f} a second"
    return [("computing time", text)]
