"""Estimate of a study: its grid, the time by a brief calibration, and the disk; nothing is written."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from replaylab.number_format import duration
from replaylab.study.execution.executor import Event, Executor, Finished, Lost, Raised, TimeTask
from replaylab.study.execution.tape_order import divided
from replaylab.study.execution.task_queue import TaskQueue
from replaylab.study.execution.worker.calibration import Speed
from replaylab.study.plan import Chunk, runs_of
from replaylab.study.results.folder import StudyFolder
from replaylab.study.spec.spec import Spec

CALIBRATION_SECONDS = 5.0
"""Seconds that a dry run trains, over all kinds of cells."""


@dataclass(frozen=True)
class CellEstimate:
    """The missing chunks of one environment, learner and strategy, and their time and disk."""

    environment: str
    learner: str
    strategy: str
    todo: tuple[Chunk, ...]
    speed: Speed | str | None
    """None: nothing is missing; a text: why it could not be trained."""

    def seconds(self, chunk: Chunk, *, long: bool) -> float:
        """Return what one chunk takes, if its evaluations are short, or as long as can be."""
        if not isinstance(self.speed, Speed):
            return 0.0
        share = len(chunk.seeds) / len(self.todo[0].seeds)
        evaluations = -(-chunk.steps // chunk.eval_every)
        limit = self.speed.limit or self.speed.longest
        stretch = max(limit / max(self.speed.longest, 1.0), 1.0) if long else 1.0
        steps = chunk.steps * self.speed.step + evaluations * self.speed.evaluation * stretch
        return self.speed.start + share * steps

    @property
    def bytes(self) -> float:
        """Disk that the missing chunks would take."""
        if not isinstance(self.speed, Speed):
            return 0.0
        full = len(self.todo[0].seeds)
        return sum(p.steps * self.speed.bytes * len(p.seeds) / full for p in self.todo)


@dataclass(frozen=True)
class Estimate:
    """The work of `Study.run` with its time and disk; printed by ``replaylab study run --dry-run``."""

    spec: Spec
    cells: tuple[CellEstimate, ...]
    todo: tuple[Chunk, ...]
    skipped: tuple[Chunk, ...]
    workers: int
    again: tuple[Chunk, ...] = ()
    """Those of `todo` whose rows are stored: only their draws are needed, by strategies that learn from them."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Expected time: with evaluations as short as now, and with every episode of them as long as can be."""
        short, long = (self._span(long=long) for long in (False, True))
        return short, long

    @property
    def failing(self) -> tuple[CellEstimate, ...]:
        """Cells that cannot be trained."""
        return tuple(cell for cell in self.cells if isinstance(cell.speed, str))

    @property
    def bytes(self) -> float:
        """Expected size of the new result files."""
        return sum(cell.bytes for cell in self.cells)

    def _span(self, *, long: bool) -> float:
        """Return the time of the workers if they take chunks in order; chunks that learn from draws wait for these."""
        cells = {(c.environment, c.learner, c.strategy): c for c in self.cells}
        queue, waiting = self._order()
        running, now = list[tuple[float, str]](), 0.0
        while queue or running:
            while queue and len(running) < self.workers:
                p = queue.popleft()
                heapq.heappush(running, (now + cells[p.key].seconds(p, long=long), p.id))
            now, ended = heapq.heappop(running)
            queue.extendleft(waiting.pop(ended, ()))
        return now

    def _order(self) -> tuple[deque[Chunk], dict[str, list[Chunk]]]:
        """Return the chunks that can begin at once, and those that wait for the draws of another one, by its id."""
        planned = {p.id for p in self.todo}
        queue, waiting = deque[Chunk](), dict[str, list[Chunk]]()
        for p in self.todo:
            source = None if p.tape_of is None else p.tape_of.id
            if source is not None and source in planned:
                waiting.setdefault(source, []).append(p)
            else:
                queue.append(p)
        return queue, waiting

    def __str__(self) -> str:
        spec, unit = self.spec, "steps" if self.spec.budget.steps else "episodes"
        lines = [
            f"environments: {', '.join(spec.environments)}",
            f"learners: {', '.join(spec.learners)}",
            f"strategies: {', '.join(spec.strategies)}",
            f"seeds: {len(spec.seeds)} each; {spec.runs} runs in all",
            f"{runs_of(self.skipped)} runs are there already; {runs_of(self.todo)} to do in {len(self.todo)} chunks, "
            f"{sum(p.steps * len(p.seeds) for p in self.todo):,} {unit}",
            *([_of_again(self.again)] if self.again else []),
            *(_line(cell, unit) for cell in self.cells),
        ]
        if self.todo:
            short, long = map(duration, self.seconds)
            span = short if short == long else f"{short} to {long} (by how long the episodes of evaluations become)"
            workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
            lines += [f"expected time: {span}, {workers}", f"expected disk: {_size(self.bytes)}"]
        return "\n".join(lines)


def _of_again(again: Sequence[Chunk]) -> str:
    strategies = ", ".join(dict.fromkeys(p.strategy for p in again))
    why = "their rows are there, the draws that tapes replay are not"
    return f"{runs_of(again)} of these, of {strategies}, run again: {why}"


def _line(cell: CellEstimate, unit: str) -> str:
    label = f"  {cell.environment} · {cell.learner} · {cell.strategy}: "
    if cell.speed is None:
        return label + "all there"
    if isinstance(cell.speed, str):
        return f"{label}FAILS: {cell.speed.strip().splitlines()[-1]}"
    pace = len(cell.todo[0].seeds) / cell.speed.step
    return f"{label}{runs_of(cell.todo)} runs of {cell.todo[0].steps:,} {unit}, {pace:,.0f} {unit}/s for each worker"


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"


def estimate_study(spec: Spec, path: Path, executor: Executor, seconds: float) -> Estimate:
    """Train each kind of cell that misses runs for its share of the seconds, with as many workers as there will be.

    Args:
        spec: the study.
        path: its folder; nothing is written there.
        executor: where they are trained.
        seconds: how long, over all.

    Raises:
        SpecError: the folder holds published rows.
        StorageError: results are damaged.
    """
    from replaylab.study.results.store import check  # heavy

    folder = StudyFolder(spec, path)
    folder.refuse_published()
    todo, skipped, again = divided(folder)
    check(map(folder.file_of, [*skipped, *again]))
    missing: dict[tuple[str, str, str], list[Chunk]] = {p.key: [] for p in folder.chunks}
    for p in todo:
        missing[p.key].append(p)
    wanted = [of[0] for of in missing.values() if of]
    workers = max(1, min(executor.slots, len(todo)))
    speeds = dict(zip((p.key for p in wanted), _speeds(wanted, workers, executor, seconds), strict=True))
    cells = tuple(CellEstimate(*kind, tuple(of), speeds.get(kind)) for kind, of in missing.items())
    return Estimate(spec, cells, tuple(todo), tuple(skipped), workers, tuple(again))


def _speed(result: bytes) -> Speed | str:
    try:
        return Speed.model_validate_json(result)
    except ValueError:
        return f"What the worker handed back is no speed: {result[:80]!r}"


def _speeds(wanted: Sequence[Chunk], workers: int, executor: Executor, seconds: float) -> list[Speed | str]:
    """Measure with all workers busy, if necessary with repeated tasks, since workers share caches, as in the study."""
    each = seconds * min(workers, len(wanted)) / max(len(wanted), 1)
    measured: dict[int, Speed | str] = {}
    queue = TaskQueue(executor)

    def take(index: int, event: Event) -> None:
        match event:
            case Finished(result):
                measured[index] = _speed(result)
            case Raised(traceback):
                measured[index] = traceback
            case Lost(reason):
                measured[index] = f"{reason}."

    for index in range(max(workers, len(wanted)) if wanted else 0):
        queue.put(TimeTask(wanted[index % len(wanted)], each), partial(take, index))
    try:
        queue.run()
    finally:
        executor.close()
    return [measured[index] for index in range(len(wanted))]
