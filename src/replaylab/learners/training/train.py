"""`train`, the function that trains a learner."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replaylab.arguments import InvalidArgument, instance, optional, place, takes, tuple_of, whole
from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Hook
from replaylab.learners.api.whole_algorithm import WholeAlgorithm
from replaylab.learners.metrics import Metrics
from replaylab.learners.training import checkpoint
from replaylab.learners.training.algorithm_run import train_algorithm
from replaylab.learners.training.configuration import TrainingConfig, warn_of_budget
from replaylab.learners.training.hooks import HookList
from replaylab.learners.training.loop import loop_of


def _seeds(value: Any) -> tuple[int, ...]:
    """Seeds, all different."""
    rule = "one or more different whole numbers from 0 on"
    seeds = tuple_of(whole(0, sys.maxsize), rule, 1)(value)
    if len(set(seeds)) < len(seeds):
        raise InvalidArgument(rule)
    return seeds


@takes(
    configuration=instance(TrainingConfig, 'a TrainingConfig("CartPole-v1", DQN(), Uniform(), total_steps=50_000)'),
    seeds=_seeds,
    hooks=tuple_of(instance(Hook, "a Hook"), "a list or tuple of hooks"),
    resume=optional(place("a folder")),
)
def train(
    configuration: TrainingConfig,
    seeds: Sequence[int],
    hooks: Sequence[Hook] = (),
    *,
    resume: str | Path | None = None,
) -> Metrics:
    """Train one learner for each seed, all together, and return the measurements.

    Replica r equals a run with ``seeds=[seeds[r]]``, up to the rounding of floating-point sums; two runs that differ
    only in their sampler start from the same weights and episodes and explore by the same draws. One turn of the loop
    is one step of every environment, except in NEXT_STEP mode, where a turn may only start an episode: it counts in
    `total_steps` and learns, but stores nothing.

    A replica that has finished its episodes is removed; the others continue in smaller arrays, which costs one copy.

    An algorithm with its own loop (`SB3`) is trained by that loop, seed after seed.
    ``DQN(replay="device")`` takes one seed, whose E environments are stepped together.

    Args:
        configuration: Configuration of the run.
        seeds: One whole number for each of the R replicas, all different.
        hooks: `Callbacks`, `Checkpoints`, `replaylab.watch.TensorBoard`, or custom hooks, see `Hook`.
        resume: Folder of a checkpoint to continue from, bit for bit; all other arguments must be unchanged.

    Returns:
        Rows of the metrics that ``docs/laboratory/training.md`` lists, and with `measure_every` those of
        ``docs/laboratory/measures.md``.

    Raises:
        ConfigError: An argument is invalid, or the learner cannot handle the environment.
        NonFiniteError: The environment gave a reward or an observation that is NaN or infinite.
        SnapshotError: `resume` holds no checkpoint, or that of another run.

    Example:
        >>> from replaylab.learners import QLearning
        >>> from replaylab.replay import Uniform
        >>> config = TrainingConfig("FrozenLake-v1", QLearning(), Uniform(), total_steps=100, eval_every=50)
        >>> steps, returns = train(config, seeds=[0, 1]).of("eval/mean_reward", seed=1)
        >>> steps.tolist()
        [50, 100]
    """
    if isinstance(configuration.learner, WholeAlgorithm):
        if resume is not None:
            name = type(configuration.learner).__name__
            raise ConfigError(f"`resume` must be None with {name}, of whose runs no checkpoints are kept; train again")
        warn_of_budget(configuration)
        return train_algorithm(configuration, seeds, hooks)
    loop = loop_of(configuration)
    attached = HookList(configuration, seeds, hooks, **loop.lacks)
    if resume is None:
        run = loop.make(configuration, seeds, attached)
    else:
        run = checkpoint.load(resume, configuration, attached, loop.make)
    try:
        run.begin()
        warn_of_budget(configuration)  # not if the call is refused
        while True:
            loop.turn(run)
            over = run.clock.over
            if np.count_nonzero(over):
                run.hooks.emit("on_end", run, over)
                if over.all():
                    metrics: Metrics = run.recorder.table()
                    return metrics
                larger, run = run, run.part(~over)
                larger.env.close()
    finally:
        run.env.close()
