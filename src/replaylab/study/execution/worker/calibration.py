"""Speed of training a chunk, measured by training it briefly: the work of a dry run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from replaylab.learners.training.configuration import BudgetWarning
from replaylab.study.execution.worker.training import train_chunk
from replaylab.study.plan import Chunk
from replaylab.study.spec.components import Part, with_arguments

_FIRST = {"steps": 400, "episodes": 4}
"""Budget of the first, shortest training; it also warms everything up."""


class Speed(BaseModel):
    """Measured cost of training a chunk; ``step`` means an episode if the budget is in episodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: float
    """Seconds before the first step."""

    step: float
    """Seconds for one step of every run, with its updates."""

    evaluation: float
    """Seconds for one evaluation of every run, by the policy of the brief training."""

    longest: float
    """Mean steps of an episode in that evaluation, of the run where it was longest."""

    limit: float | None = None
    """Steps of the longest episode that the environment allows; None: it has no limit."""

    bytes: float
    """Bytes on disk for one step of every run."""


def calibrate(chunk: Chunk, seconds: float) -> Speed:
    """Train a chunk for about this long, with its own settings but an early start of the learning."""
    first = _FIRST[chunk.unit]
    trial = _trained(chunk, min(first, chunk.steps))
    affordable = int(seconds / max(trial["step"], 1e-9))
    budget = min(max(first, affordable // first * first), chunk.steps)
    again = _trained(chunk, budget)
    grown = again["size"] - trial["size"]
    per_step = grown / (budget - trial["budget"]) if budget > trial["budget"] else again["size"] / budget
    measured = {name: again[name] for name in Speed.model_fields if name in again}
    return Speed(limit=_limit(chunk), bytes=max(per_step, 0.0), **measured)


def _limit(chunk: Chunk) -> int | None:
    """Return where the environment cuts an episode of an evaluation at the latest, as it is made with its options."""
    from replaylab.envs import make_vector_env  # with Gymnasium, which a report does without
    from replaylab.envs.vectorize import step_limit, whole_games

    env_id, options = chunk.made_of
    env = make_vector_env(env_id, 1, **whole_games(env_id, options))
    try:
        return step_limit(env)
    finally:
        env.close()


def _trained(chunk: Chunk, budget: int) -> dict[str, float]:
    """Train for a budget that ends with one evaluation, and return its cost."""
    from replaylab.study.results.store import encoded  # heavy

    brief = _brief(chunk, budget)
    options = with_arguments(brief.learner_part.options)
    skipped = options.get("learning_starts", 0) if brief.unit == "steps" else 0
    times: list[tuple[int, float]] = []
    lengths: list[float] = []

    def on_step(step: int) -> None:
        if step >= skipped:
            times.append((step, time.perf_counter()))

    def on_metrics(_: int, values: Mapping[str, Any]) -> None:
        if "eval/mean_ep_length" in values:
            lengths_of_runs = values["eval/mean_ep_length"]
            lengths.append(float(lengths_of_runs[lengths_of_runs == lengths_of_runs].max()))

    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # this budget is not the study's
        columns = train_chunk(brief, on_step, on_metrics)
    took = time.perf_counter() - began
    size = len(encoded(brief, columns, {}))
    return {"budget": budget, "size": size, "longest": max(lengths)} | _pace(times, budget, took)


def _pace(times: list[tuple[int, float]], budget: int, took: float) -> dict[str, float]:
    """Return the time of a step, of the evaluation (between the last two times) and of the start."""
    if len(times) < 3:  # a budget so small that nothing can be distinguished
        return {"step": took / budget, "evaluation": 0.0, "start": 0.0}
    (first, began), (last, ended) = times[0], times[-2]
    step = (ended - began) / (last - first)
    evaluation = max(times[-1][1] - ended - (times[-1][0] - last) * step, 0.0)
    return {"step": step, "evaluation": evaluation, "start": max(took - budget * step - evaluation, 0.0)}


def _brief(chunk: Chunk, budget: int) -> Chunk:
    options = chunk.learner_part.options
    early = _early(options)
    if isinstance(options.get("arguments"), dict):  # of an algorithm that has its own loop
        early = {"arguments": options["arguments"] | _early(options["arguments"])}
    part = Part.of(chunk.learner_part.type, options | early)
    return chunk.model_copy(update={"learner_part": part, "steps": budget, "eval_every": budget})


def _early(options: Mapping[str, Any]) -> dict[str, int]:
    """Return when learning is to start, if the options report it."""
    if "learning_starts" not in options:
        return {}
    return {"learning_starts": min(options["learning_starts"], max(100, options.get("batch_size", 1)))}
