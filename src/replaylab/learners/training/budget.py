"""Warnings of periods and a warm-up that do not fit a run's budget."""

import warnings
from collections.abc import Iterator

from replaylab.learners.training.configuration import TrainingConfig


class BudgetWarning(UserWarning):
    """A setting of the configuration has no effect within the run's budget."""


def warn_of_budget(configuration: TrainingConfig) -> None:
    """Warn of each setting whose metrics can never be recorded in the budget, and of a warm-up that outlasts it."""
    for message in _warnings(configuration):
        warnings.warn(message, BudgetWarning, stacklevel=4)


def _warnings(config: TrainingConfig) -> Iterator[str]:
    if config.eval_every is None:
        for name in ("held_out", "value_error"):
            if getattr(config, name):
                yield f"`{name}` is recorded at evaluations, but `eval_every` is None; set `eval_every`"
    if config.total_steps is None:
        episodes = config.total_episodes or 0
        if config.log_every > episodes:
            yield _never("log_every", config.log_every, f"{episodes:,} episodes", episodes)
        return
    period = getattr(config.learner, "train_period", 1)
    last = config.total_steps // period * period  # step of the last turn of learning
    starts = getattr(config.learner, "learning_starts", 0)
    budget = f"{config.total_steps:,} steps"
    if starts > last:
        replays = getattr(config.learner, "batch_size", 1) > 0
        yield (
            f"`learning_starts` = {starts:,} is not reached in the budget of {budget}, so "
            f"{'no batch is learned from and ' if replays else ''}no metric of updates is recorded; set it to at most "
            f"{last:,}"
        )
        return
    for name, value in (("log_every", config.log_every), ("measure_every", config.measure_every)):
        if value is not None and value > last:
            yield _never(name, value, budget, last)


def _never(name: str, value: int, budget: str, most: int) -> str:
    return (
        f"`{name}` = {value:,} is not reached in the budget of {budget}, so the metrics that depend on it are never "
        f"recorded; set it to at most {most:,}, or leave it out"
    )
