"""Training a population: from its settings to its rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from replaylab.study.plan.populations import Population
from replaylab.study.spec.components import LEARNERS, STRATEGIES, TRANSFORMS, build


def train_population(
    population: Population,
    on_step: Callable[[int], None] | None = None,
    on_metrics: Callable[[int, Mapping[str, Any]], None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Train a population in this process and return its columns: seed, step, metric, value; each (rows,).

    Args:
        population: what to train.
        on_step: hears of the steps taken, now and then.
        on_metrics: hears of each evaluation and each look at the learner: the step, and values of shape
            (seeds,).
        **more: further options of `train`: save, save_every, resume, on_end.
    """
    from replaylab.learners import train

    os.environ["OMP_NUM_THREADS"] = "1"  # of PyTorch, if it is needed: small networks, a second thread costs more
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    metrics = train(
        population.environment,
        build(population.learner_part, LEARNERS),
        build(population.strategy_part, STRATEGIES),
        list(population.seeds),
        transforms=[build(one, TRANSFORMS) for one in population.transforms],
        env_options=population.env_options,
        total_steps=population.steps if population.unit == "steps" else None,
        total_episodes=population.steps if population.unit == "episodes" else None,
        eval_every=population.eval_every,
        eval_episodes=population.eval_episodes,
        held_out=population.held_out,
        value_error=population.value_error,
        log_every=population.log_every,
        visits=population.visits,
        measure_every=population.measure_every or None,
        progress=on_step,
        on_metrics=on_metrics,
        **more,
    )
    columns: dict[str, Any] = metrics.columns
    return columns
