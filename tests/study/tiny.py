"""A study that runs in a second or two, for tests of everything around the training."""

import copy
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from replaylab.study import InProcess, Spec, Study
from replaylab.study.plan import Chunk
from replaylab.study.results.folder import StudyFolder
from replaylab.study.results.store import write_chunk

TABLE: dict[str, Any] = {
    "name": "tiny",
    "title": 'A <tiny> study & its "quotes"',
    "environments": ["CartPole-v1"],
    "seeds": 4,
    "chunk_size": 2,
    "budget": {"steps": 300},
    "evaluation": {"every": 100, "episodes": 2},
    "logging": {"every": 50},
    "measures": {"every": 100},
    "learners": {"dqn": {"type": "dqn", "hidden": [8], "batch_size": 8, "learning_starts": 20}},
    "strategies": {"uniform": {"type": "uniform"}, "prioritized": {"type": "prioritized"}},
}


def table(**changes: Any) -> dict[str, Any]:
    """Return the tiny study's tables with some replaced; ``budget__steps=9`` reaches into a table."""
    changed = copy.deepcopy(TABLE)
    for path, value in changes.items():
        *way, last = path.split("__")
        place = changed
        for key in way:
            place = place[key]
        place[last] = value
    return changed


def study(folder: Path, **changes: Any) -> Study:
    """Return the tiny study in a folder."""
    return Study(Spec.from_table(table(**changes)), folder)


def run_here(folder: Path, **changes: Any) -> Study:
    """Return the tiny study in a folder, run in this process."""
    created = study(folder, **changes)
    assert created.run(executor=InProcess()).complete
    return created


def rows(of_study: Study) -> dict[str, list[Any]]:
    """Return all rows of a study, column by column."""
    return {k: v.tolist() for k, v in of_study.results().fetchnumpy().items()}


Row = tuple[int, int, str, float]
"""A seed, a step, a metric and its value."""


def write_rows(into: Study, rows_of: Callable[[Chunk], Iterable[Row]], versions: Sequence[dict[str, str]] = ()) -> None:
    """Write made-up results: the rows that a function makes of each chunk; versions as for `pretend`."""
    StudyFolder(into.spec, into.folder).write_records()
    for chunk, made_with in zip(into.chunks, cycle(versions or [{"python": "3"}]), strict=False):
        columns = map(np.array, zip(*rows_of(chunk), strict=True))
        named = dict(zip(("seed", "step", "metric", "value"), columns, strict=True))
        write_chunk(into.file_of(chunk), chunk, named, made_with)


def lose(of_study: Study, lost: Callable[[Chunk], bool]) -> None:
    """Remove the rows of some chunks."""
    for chunk in filter(lost, of_study.chunks):
        of_study.file_of(chunk).unlink()


def pretend(into: Study, gain: float, versions: Sequence[dict[str, str]] = ()) -> None:
    """Write made-up results: uniform ends near 100, every other strategy ``gain`` higher, paired by seed.

    Args:
        into: The study.
        gain: How much higher.
        versions: Of libraries, in turn for its chunks; none: one Python for all.
    """
    every = into.spec.evaluation.every

    def rows_of(chunk: Chunk) -> Iterator[Row]:
        grid = np.arange(every, into.spec.budget_of(chunk.strategy).total + 1, every)
        for seed in chunk.seeds:
            level = 100 + 5.0 * np.random.default_rng(seed).normal()
            of_seed = np.random.default_rng([seed, len(chunk.strategy)]).normal()
            level += 0.0 if chunk.strategy == into.spec.baseline else gain + of_seed
            replayed = {"uniform": 8, "prioritized": 8}.get(chunk.strategy, 1)
            for step in grid.tolist():
                yield seed, step, "eval/mean_reward", level * step / grid[-1]
                yield seed, step, "train/q_mean", step / 10
                yield seed, step, "train/updates", step - 20
                yield seed, step, "replay/transitions_replayed", replayed * (step - 20)

    write_rows(into, rows_of, versions)


def pretended(folder: Path, gain: float, **changes: Any) -> Study:
    """Return the tiny study in a folder, with made-up results."""
    created = study(folder, **changes)
    pretend(created, gain)
    return created


def page_of(folder: Path, gain: float, **changes: Any) -> str:
    """Return the page that reports the tiny study with made-up results."""
    return pretended(folder, gain, **changes).report(figure_files=False).read_text(encoding="utf-8")


@contextmanager
def undrawn(*, pages: bool = True) -> Iterator[None]:
    """Leave the figures of reports empty, for tests of words, tables and numbers: drawing is most of the work.

    Args:
        pages: The page's and the SVG files', too, and not the PNG files' alone.
    """
    from replaylab.plotting import svg  # not for those who write no report

    nothing = np.full((1, 1, 3), 255, dtype=np.uint8)
    empty = {"pixels": lambda figure: nothing} | ({"body": lambda figure: ""} if pages else {})
    with mock.patch.multiple(svg, **empty):
        yield


@contextmanager
def sections(*names: str, drawn: bool = False) -> Iterator[None]:
    """Of a report's sections write these alone, beside its summary, contrasts and methods.

    Args:
        names: Of the sections' modules.
        drawn: Whether the page and the SVG files have their figures.
    """
    from replaylab.study.report import report

    chosen = tuple(section for section in report.SECTIONS if section.__module__.rpartition(".")[2] in names)
    assert len(chosen) == len(names)
    with undrawn(pages=not drawn), mock.patch.object(report, "SECTIONS", chosen):
        yield


FILE = """
name = "tiny"
environments = ["{env}"]
seeds = {seeds}
chunk_size = 3
[budget]
steps = 60
[evaluation]
every = 30
episodes = 1
[measures]
every = 0
[learners.dqn]
type = "{learner}"
[strategies.uniform]
type = "{strategy}"
"""


def command(
    folder: Path, *more: str, env: str = "CartPole-v1", seeds: int = 2, learner: str = "dqn", strategy: str = "uniform"
) -> list[str]:
    """Write a study file and return the arguments that run it."""
    file = folder / "study.toml"
    file.write_text(FILE.format(env=env, seeds=seeds, learner=learner, strategy=strategy))
    return ["study", "run", str(file), "--out", str(folder / "out"), *more]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, by its header."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
