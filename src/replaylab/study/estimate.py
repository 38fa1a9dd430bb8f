"""What running a study would take: its grid, the time by a brief calibration, and the disk. Runs nothing for good."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from replaylab.study.calibration import Speed
from replaylab.study.plan import Population
from replaylab.study.progress import duration, runs_of
from replaylab.study.runner import start_worker
from replaylab.study.spec import Spec

CALIBRATION_SECONDS = 5.0
"""How long a dry run trains, over all kinds of cells."""

Kind = tuple[str, str, str]
"""Environment, learner, strategy."""


@dataclass(frozen=True)
class Cell:
    """One environment, learner and strategy: what is missing of it, and what that would take."""

    environment: str
    learner: str
    strategy: str
    todo: tuple[Population, ...]
    speed: Speed | str | None
    """None: nothing is missing; a text: why it could not be trained."""

    longest: float
    """Steps of the longest episode there can be."""

    def seconds(self, population: Population, *, long: bool) -> float:
        """Return what one population takes, if its evaluations are short, or as long as can be."""
        if not isinstance(self.speed, Speed):
            return 0.0
        share = len(population.seeds) / len(self.todo[0].seeds)
        evaluations = -(-population.steps // population.eval_every)
        stretch = max(self.longest / max(self.speed.longest, 1.0), 1.0) if long else 1.0
        steps = population.steps * self.speed.step + evaluations * self.speed.evaluation * stretch
        return self.speed.start + share * steps

    @property
    def bytes(self) -> float:
        """Disk that the missing populations would take."""
        if not isinstance(self.speed, Speed):
            return 0.0
        full = len(self.todo[0].seeds)
        return sum(p.steps * self.speed.bytes * len(p.seeds) / full for p in self.todo)


@dataclass(frozen=True)
class Estimate:
    """What `Study.run` would do, and what it would take; printed, it is ``replaylab study run --dry-run``."""

    spec: Spec
    cells: tuple[Cell, ...]
    todo: tuple[Population, ...]
    kept: tuple[Population, ...]
    workers: int

    @property
    def seconds(self) -> tuple[float, float]:
        """Expected time: with evaluations as short as now, and with every episode of them as long as can be."""
        short, long = (self._span(long=long) for long in (False, True))
        return short, long

    @property
    def bytes(self) -> float:
        """Expected size of the new result files."""
        return sum(cell.bytes for cell in self.cells)

    def _span(self, *, long: bool) -> float:
        """Hand populations to the workers in the study's order, each to the first that is free."""
        cells = {(c.environment, c.learner, c.strategy): c for c in self.cells}
        free = [0.0] * self.workers
        for p in self.todo:
            cell = cells[p.environment, p.learner, p.strategy]
            heapq.heapreplace(free, free[0] + cell.seconds(p, long=long))
        return max(free)

    def __str__(self) -> str:
        spec, unit = self.spec, "steps" if self.spec.budget.steps else "episodes"
        lines = [
            f"environments: {', '.join(spec.environments)}",
            f"learners: {', '.join(spec.learners)}",
            f"strategies: {', '.join(spec.strategies)}",
            f"seeds: {len(spec.seeds)} each; {spec.runs} runs in all",
            f"{runs_of(self.kept)} runs are there already; {runs_of(self.todo)} to do in {len(self.todo)} populations, "
            f"{sum(p.steps * len(p.seeds) for p in self.todo):,} {unit}",
            *(_line(cell, unit) for cell in self.cells),
        ]
        if self.todo:
            short, long = map(duration, self.seconds)
            span = short if short == long else f"{short} to {long} (by how long the episodes of evaluations become)"
            workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
            lines += [f"expected time: {span}, {workers}", f"expected disk: {_size(self.bytes)}"]
        return "\n".join(lines)


def _line(cell: Cell, unit: str) -> str:
    label = f"  {cell.environment} · {cell.learner} · {cell.strategy}: "
    if cell.speed is None:
        return label + "all there"
    if isinstance(cell.speed, str):
        return f"{label}FAILS: {cell.speed.strip().splitlines()[-1]}"
    pace = len(cell.todo[0].seeds) / cell.speed.step
    return f"{label}{runs_of(cell.todo)} runs of {cell.todo[0].steps:,} {unit}, {pace:,.0f} {unit}/s for each worker"


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"


def estimate(
    spec: Spec, populations: Sequence[Population], kept: Sequence[Population], workers: int, seconds: float
) -> Estimate:
    """Train each kind of cell that misses runs for its share of the seconds, in as many workers as there will be."""
    there = {p.id for p in kept}
    todo = [p for p in populations if p.id not in there]
    missing: dict[Kind, list[Population]] = {_kind(p): [] for p in populations}
    for p in todo:
        missing[_kind(p)].append(p)
    wanted = [of[0] for of in missing.values() if of]
    workers = max(1, min(workers, len(todo)))
    speeds = dict(zip(map(_kind, wanted), _speeds(wanted, workers, seconds), strict=True))
    cells = tuple(
        Cell(*kind, tuple(of), speeds.get(kind), _limit(kind[0], speeds.get(kind))) for kind, of in missing.items()
    )
    return Estimate(spec, cells, tuple(todo), tuple(kept), workers)


def _kind(population: Population) -> Kind:
    return population.environment, population.learner, population.strategy


def _limit(environment: str, speed: Speed | str | None) -> float:
    """The time limit of an environment; where it has none, what was seen."""
    import gymnasium as gym

    seen = speed.longest if isinstance(speed, Speed) else 0.0
    limit = gym.spec(environment).max_episode_steps if seen else None
    return float(limit or seen)


def _speeds(wanted: Sequence[Population], workers: int, seconds: float) -> list[Speed | str]:
    """Measure with all workers busy: as in the study, they share the machine's caches and memory."""
    if not wanted:
        return []
    each = seconds * min(workers, len(wanted)) / len(wanted)
    shares = [list(wanted[i::workers]) or [wanted[i % len(wanted)]] for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        measured = list(pool.map(lambda share: _measured(share, each), shares))
    return [measured[i % workers][i // workers] for i in range(len(wanted))]


def _measured(share: Sequence[Population], seconds: float) -> list[Speed | str]:
    process = start_worker()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        found: list[Speed | str] = []
        for population in share:
            job = {"population": population.model_dump(mode="json"), "seconds": seconds}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            answer: dict[str, Any] = json.loads(line) if line else {"traceback": "the worker process died"}
            found.append(Speed(**answer["speed"]) if "speed" in answer else answer["traceback"])
            if not line:
                return found + ["the worker process died"] * (len(share) - len(found))
        return found
    finally:
        process.kill()
        process.communicate()
