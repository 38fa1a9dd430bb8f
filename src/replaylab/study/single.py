"""One population by hand: one learner, one environment, one strategy, any seeds."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from replaylab import statistics
from replaylab.errors import SpecError
from replaylab.study import analysis, provenance, words
from replaylab.study.parts import LEARNERS, STRATEGIES, Catalogue, Part, resolve
from replaylab.study.plan import Population, plan
from replaylab.study.progress import duration
from replaylab.study.spec import Spec
from replaylab.study.store import write_population
from replaylab.study.worker import train_population


def single(
    *,
    environment: str,
    strategy: str,
    strategy_options: Iterable[str],
    learner: str,
    learner_options: Iterable[str],
    seeds: Iterable[int],
    steps: int,
    eval_every: int,
    eval_episodes: int,
) -> Population:
    """Return the population that these words of a command line describe.

    Args:
        environment: Gymnasium id.
        strategy: a sampler type.
        strategy_options: ``key=value``, values as in TOML.
        learner: a learner type.
        learner_options: ``key=value``, values as in TOML.
        seeds: the seeds, trained together.
        steps: environment steps of each.
        eval_every: environment steps between evaluations.
        eval_episodes: episodes of one evaluation.

    Raises:
        SpecError: an option is unknown or breaks a rule.
    """
    chosen = tuple(seeds)
    spec = Spec.from_table(
        {
            "name": "train",
            "environments": [environment],
            "learners": {learner: _part(learner, learner_options, LEARNERS, "--learner")},
            "strategies": {strategy: _part(strategy, strategy_options, STRATEGIES, "--strategy")},
            "baseline": strategy,
            "seeds": chosen,
            "population": max(1, len(chosen)),
            "budget": {"steps": steps},
            "evaluation": {"every": eval_every, "episodes": eval_episodes},
        },
        source="train",
    )
    return plan(spec)[0]


def _part(kind: str, options: Iterable[str], catalogue: Catalogue, where: str) -> dict[str, Any]:
    part = Part.of(kind, dict(_option(option, where) for option in options))
    return resolve(part, catalogue, where, "train").model_dump()


def _option(text: str, where: str) -> tuple[str, Any]:
    """Split ``key=value``; a value that is no TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(f"train: {where}-options take KEY=VALUE, but got {text!r}.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def train_and_tell(population: Population, console: Console, out: Path | None) -> statistics.Interval:
    """Train, print each evaluation and the final level, write the rows if asked, and return the final level.

    Args:
        population: what to train.
        console: where to print; the progress bar is for terminals only.
        out: a Parquet file, or None.
    """
    began = time.perf_counter()
    bar = Progress(
        TextColumn(population.label),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[speed]:,.0f} steps/s"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    _say(console, f"{population.label}, {population.steps:,} steps each")
    with bar:
        task = bar.add_task("", total=population.steps, speed=0.0)

        def on_step(step: int) -> None:
            elapsed = time.perf_counter() - began
            bar.update(task, completed=step, speed=step * len(population.seeds) / elapsed)

        def on_metrics(step: int, values: Mapping[str, NDArray[np.float64]]) -> None:
            if analysis.RETURN in values:
                found = statistics.bootstrap_interval(values[analysis.RETURN], resamples=1_000)
                _say(console, f"{step:>10,} steps   greedy return {_level(found)}")

        columns = train_population(population, on_step, on_metrics)
    seconds = time.perf_counter() - began
    if out is not None:
        write_population(out, population, columns, provenance.versions())
    final = _final(columns, population)
    total = population.steps * len(population.seeds)
    _say(
        console,
        f"final level {_level(final)}, interquartile mean over "
        f"{words.counted(len(population.seeds), 'seed')} with its 95 % interval",
    )
    _say(console, f"{total:,} environment steps in {duration(seconds)}, {total / seconds:,.0f} a second")
    if out is not None:
        _say(console, f"rows: {out}")
    return final


def _level(found: statistics.Interval) -> str:
    return f"{words.estimate(found)} ({words.interval(found)})"


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _final(columns: Mapping[str, NDArray[Any]], population: Population) -> statistics.Interval:
    """The final level, by the same measure as in a study's report."""
    rows = columns["metric"] == analysis.RETURN
    curve = analysis.curve_of_runs(population, *(columns[k][rows] for k in ("seed", "step", "value")))
    return statistics.bootstrap_interval(curve.of_runs("final"))
