"""One population from the command line: one learner, one environment, one strategy, any seeds."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from replaylab import statistics
from replaylab.commands import actors
from replaylab.errors import SnapshotError, SpecError
from replaylab.files.atomic import write_text
from replaylab.study.analysis import comparisons
from replaylab.study.execution.worker.training import train_population
from replaylab.study.plan.populations import Population, plan
from replaylab.study.report import sentences
from replaylab.study.results import provenance
from replaylab.study.results.durations import duration
from replaylab.study.results.store import write_population
from replaylab.study.spec.components import LEARNERS, STRATEGIES, Catalogue, Part, resolve
from replaylab.study.spec.errors import first_fault
from replaylab.study.spec.json_data import json_data
from replaylab.study.spec.study_file import Spec

if TYPE_CHECKING:
    from replaylab.learners import Agents, Hook
    from replaylab.watch import Episode

SAVING = "saving.json"
"""Beside population.json: how often the run is saved."""

Trainer = Callable[..., dict[str, Any]]
"""Trains a population, as `train_population` does, and returns its columns."""


def described_population(
    *,
    environment: str,
    strategy: str,
    strategy_options: Iterable[str],
    learner: str,
    learner_options: Iterable[str],
    seeds: Iterable[int],
    steps: int | None,
    eval_every: int,
    eval_episodes: int,
    held_out: int = 0,
    episodes: int | None = None,
    transforms: Iterable[str] = (),
    env_options: Iterable[str] = (),
) -> Population:
    """Return the population that these options of a command line describe.

    Args:
        environment: Gymnasium id.
        strategy: a sampler type, or ``module:Class``.
        strategy_options: ``key=value``, values as in TOML.
        learner: a learner type, or ``module:Class``.
        learner_options: ``key=value``, values as in TOML.
        seeds: the seeds, trained together.
        steps: environment steps of each.
        eval_every: environment steps between evaluations.
        eval_episodes: episodes of one evaluation.
        held_out: states whose values each evaluation reports.
        episodes: episodes of each, instead of steps.
        transforms: ``type`` or ``type:key=value,key=value``, values as in TOML.
        env_options: ``key=value`` for the environment's constructor.

    Raises:
        SpecError: an option is unknown or breaks a rule.
    """
    chosen = tuple(seeds)
    name = strategy.rpartition(":")[2]
    spec = Spec.from_table(
        {
            "name": "train",
            "environments": [environment],
            "learners": {learner.rpartition(":")[2]: _part(learner, learner_options, LEARNERS, "--learner")},
            "strategies": {
                name: {
                    **_part(strategy, strategy_options, STRATEGIES, "--strategy"),
                    "transforms": [_transform(text) for text in transforms],
                }
            },
            "env_options": {environment: _options(env_options, "--env-options")},
            "baseline": name,
            "seeds": chosen,
            "population": max(1, len(chosen)),
            "budget": {"steps": steps} if episodes is None else {"episodes": episodes},
            "evaluation": {"every": eval_every, "episodes": eval_episodes, "held_out": held_out},
            "logging": {"every": 500 if episodes is None else max(1, episodes // 100)},
        },
        source="train",
    )
    return plan(spec)[0].model_copy(update={"seeds": chosen})


def _part(kind: str, options: Iterable[str], catalogue: Catalogue, where: str) -> dict[str, Any]:
    part = Part.of(kind, _options(options, f"{where}-options"))
    return resolve(part, catalogue, where, "train").model_dump()


def _transform(text: str) -> dict[str, Any]:
    kind, _, options = text.partition(":")
    return {"type": kind, **_options([option for option in options.split(",") if option], "--transforms")}


def _options(texts: Iterable[str], where: str) -> dict[str, Any]:
    """Return what options of a command line say; each name may be given once."""
    pairs = [_option(text, where) for text in texts]
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"train: {where} must give each name once, but got {twice[0]} {names.count(twice[0])} times")
    return dict(pairs)


def _option(text: str, where: str) -> tuple[str, Any]:
    """Split ``key=value``; a value that is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SpecError(f"train: {where} take KEY=VALUE, but got {text!r}.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def saved_population(folder: Path) -> Population:
    """Return the population whose run was saved in a folder.

    Raises:
        SnapshotError: the folder holds no run, or a damaged one.
    """
    file = folder / "population.json"
    if not file.is_file():
        raise SnapshotError(f"{folder} holds no run: there is no population.json in it; pass the folder of --save")
    try:
        return Population.model_validate_json(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SnapshotError(f"{file} is damaged: {first_fault(error)}; use another copy") from error


def saved_period(folder: Path) -> int | None:
    """Return how often a run is saved, or None where the folder does not tell: one of an earlier version."""
    try:
        period = json.loads((folder / SAVING).read_text(encoding="utf-8"))["save_every"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return period if isinstance(period, int) and period > 0 else None


def default_save_period(population: Population) -> int | None:
    """Return a tenth of the budget, or None where the environment cannot continue from a checkpoint."""
    from replaylab.envs import make_vector_env
    from replaylab.learners.training import env_state

    env_id, options = population.made_of
    env = make_vector_env(env_id, 1, **options)
    try:
        return max(1, population.steps // 10) if env_state.possible(env) else None
    finally:
        env.close()


def train_and_report(
    population: Population,
    console: Console,
    out: Path | None,
    *,
    save: Path | None = None,
    save_every: int | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    video: Path | None = None,
    trainer: Trainer = train_population,
) -> statistics.Interval:
    """Train, print each evaluation and the final level, write the rows if asked, and return the final level.

    Args:
        population: what to train.
        console: where to print; the progress bar is for terminals only.
        out: a Parquet file, or None.
        save: folder for checkpoints and for what each agent has learned.
        save_every: steps or episodes between checkpoints; None: only what each agent has learned is saved.
        resume: continue from the checkpoint in that folder.
        tensorboard: folder for event files.
        video: file for a greedy episode of the first seed, once it is trained.
        trainer: what trains a population and returns its columns.
    """
    from replaylab.learners import Callbacks, Checkpoints

    began = time.perf_counter()
    film = None if video is None else _Film(population, video)
    hooks: list[Hook] = [] if film is None else [Callbacks(on_end=film)]
    _print(console, f"{population.label}, {population.steps:,} {population.unit} each")
    if save is not None:
        hooks.append(Checkpoints(save, save_every))
        if not resume:
            save.mkdir(parents=True, exist_ok=True)
            (save / actors.FILE).unlink(missing_ok=True)  # of a run that was there before; `trainer` writes its own
            write_text(save / "population.json", json.dumps(json_data(population), indent=1))
        write_text(save / SAVING, json.dumps({"save_every": save_every}))
    with ExitStack() as open_files:
        if tensorboard is not None:
            from replaylab.watch import TensorBoard

            hooks.append(open_files.enter_context(TensorBoard(tensorboard, population.seeds)))
        columns, trained = _train_with_progress(population, console, hooks, save if resume else None, trainer)
    if out is not None:
        write_population(out, population, columns, provenance.versions())
    final = _final(columns, population)
    _print(console, f"final level {sentences.with_interval(final, len(population.seeds))}, {_measure(population)}")
    _print(console, _speed(population, trained, time.perf_counter() - began))
    if out is not None:
        _print(console, f"rows: {out}")
    if film is not None:
        _print(console, f"greedy episode of seed {population.seeds[0]}, {film.outcome}")
    return final


def _train_with_progress(
    population: Population, console: Console, hooks: Sequence[Hook], resume: Path | None, trainer: Trainer
) -> tuple[dict[str, Any], int]:
    """Train with a progress bar, print each evaluation, and return the rows, and how much was trained now."""
    from replaylab.commands.session import Session  # with the learners, which are heavy

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn(f"{{task.fields[speed]:,.0f}} {population.unit}/s"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    began, session = time.perf_counter(), Session()
    evaluated: dict[int, NDArray[np.float64]] = {}
    with bar:
        task = bar.add_task(population.label, total=population.steps, speed=0.0)

        def on_step(step: int) -> None:
            elapsed = time.perf_counter() - began
            bar.update(task, completed=step, speed=session.taken / elapsed)

        def on_metrics(step: int, values: Mapping[str, NDArray[np.float64]]) -> None:
            if comparisons.RETURN not in values:
                return
            returns = values[comparisons.RETURN]
            evaluated[step] = np.where(np.isnan(returns), evaluated.get(step, returns), returns)
            if np.isfinite(evaluated[step]).all():  # with a budget of episodes the seeds come one by one
                found = statistics.bootstrap_interval(evaluated.pop(step), resamples=1_000)
                level = sentences.with_interval(found, len(population.seeds))
                _print(console, f"{step:>10,} {population.unit}   greedy return {level}")

        columns = trainer(population, on_step, on_metrics, hooks=[session, *hooks], resume=resume)
    return columns, session.todo


class _Film:
    """Films a greedy episode of the first seed when its training ends; whether that is possible is tested at once."""

    max_steps = 3_000
    outcome = "was not played"

    def __init__(self, population: Population, path: Path) -> None:
        self.population, self.path = population, path
        self._play(None, 1)

    def __call__(self, ended: list[int], agents: Agents) -> None:
        """Film the first seed, if it is among those that are trained."""
        first = self.population.seeds[0]
        if first not in ended:
            return
        from replaylab.watch import greedy, write_video

        episode = self._play(greedy(agents, len(ended), ended.index(first)), self.max_steps)
        self.outcome = f"{episode}: {write_video(self.path, episode.frames, episode.fps)}"

    def _play(self, policy: Callable[[Any], Any] | None, max_steps: int) -> Episode:
        from replaylab.watch import play

        env_id, options = self.population.made_of
        return play(env_id, policy, max_steps=max_steps, env_options=options)


def _measure(population: Population) -> str:
    if len(population.seeds) == 1:
        return "of one seed, so without an interval"
    return f"interquartile mean over {len(population.seeds)} seeds with its 95 % interval"


def _speed(population: Population, trained: int, seconds: float) -> str:
    total = population.steps * len(population.seeds)
    counted = "environment steps" if population.unit == "steps" else "episodes"
    share = f"{total:,}" if trained == total else f"{trained:,} of {total:,}"
    return f"{share} {counted} in {duration(seconds)}, {trained / seconds:,.0f} a second"


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _final(columns: Mapping[str, NDArray[Any]], population: Population) -> statistics.Interval:
    """The final level, by the same measure as in a study's report."""
    rows = columns["metric"] == comparisons.RETURN
    curve = comparisons.curve_of_runs(population, *(columns[k][rows] for k in ("seed", "step", "value")))
    return statistics.bootstrap_interval(curve.of_runs("final"))
