"""The training loop."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import Unfit, instance, optional, place, takes, tuple_of, whole
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.learners.api.feedback import give_back
from replaylab.learners.api.hooks import EnvStep, Hook, TrainingRun
from replaylab.learners.api.protocols import (
    TargetAgents,
    Update,
    ValueUpdate,
    each,
    reducible_loss,
    target_values,
)
from replaylab.learners.api.whole_algorithm import WholeAlgorithm
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.training import checkpoint
from replaylab.learners.training.algorithm_run import train_algorithm
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.hooks import Hooks
from replaylab.learners.training.state import Run
from replaylab.replay import Batch


def _seeds(value: Any) -> tuple[int, ...]:
    """Seeds, all different."""
    rule = "one or more different whole numbers from 0 on"
    seeds = tuple_of(whole(0, sys.maxsize), rule, 1)(value)
    if len(set(seeds)) < len(seeds):
        raise Unfit(rule)
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
    """Train one learner for each seed, all together, and return what was measured.

    Replica r equals a run with ``seeds=[seeds[r]]``, up to the rounding of floating-point sums; two runs
    that differ in their sampler only start from the same weights and episodes and explore by the same draws.
    One turn of the loop is one step of every environment, except in NEXT_STEP mode, where a turn may only
    start an episode: it counts in `total_steps` and learns, but stores nothing.

    A replica that has finished its episodes leaves the population, which continues with the others in smaller arrays:
    the only cost is one copy of what the others have.

    An algorithm with a loop of its own (`SB3`) is trained by that, seed after seed, and only watched.

    Args:
        configuration: What is trained, and what is recorded of it.
        seeds: One whole number for each of the R replicas, all different.
        hooks: What else watches or steers training: `Callbacks`, `Checkpoints`, `replaylab.watch.TensorBoard`, or a
            `Hook` of your own.
        resume: Folder of a checkpoint to continue from, bit for bit; all other arguments must be as they were.

    Returns:
        Rows of the metrics that ``docs/laboratory/training.md`` lists, and with `measure_every` those of
        ``docs/laboratory/measures.md``.

    Raises:
        ConfigError: An argument is out of its range, or the environment does not fit the learner.
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
            raise ConfigError(f"`resume` must be None with {name}, of whose runs no checkpoints are kept; train anew")
        return train_algorithm(configuration, seeds, hooks)
    attached = Hooks(configuration, seeds, hooks)
    run = Run(configuration, seeds, attached) if resume is None else checkpoint.load(resume, configuration, attached)
    try:
        run.begin()
        while True:
            turn(run)
            over = run.clock.over
            if over.any():
                for on_end in run.hooks.on_end:
                    on_end(run, over)
                if over.all():
                    return run.recorder.table()
                larger, run = run, run.part(~over)
                larger.env.close()
    finally:
        run.env.close()


def turn(run: Run) -> None:
    """Take one step in every environment, and learn."""
    learner, agents, clock, hooks = run.learner, run.agents, run.clock, run.hooks
    for before_turn in hooks.before_turn:
        before_turn(run)
    clock.step()
    agents.set_progress(clock.progress)
    action = agents.act(each(lambda part: part[:, None], run.obs), explore=True)[:, 0]
    run.observe_waiting(action)

    step = run.step(action)
    ids = _store(run, step)
    clock.end(step.ended)
    for on_step in hooks.on_step:
        on_step(run, step, ids)
    run.go_on(step)

    if learner.online:
        run.observe(step, ids)
        run.recorder.count_online_update()
    if clock.steps >= learner.learning_starts and clock.steps % learner.train_period == 0:
        for _ in range(learner.gradient_steps if learner.batch_size else 0):
            _replay(run)
        for after_learning in hooks.after_learning:
            after_learning(run)
    for after_turn in hooks.after_turn:
        after_turn(run)


def _store(run: Run, step: EnvStep) -> npt.NDArray[np.int64]:
    """Store a step, as the hooks want it, and return its ids, (R,)."""
    for before_store in run.hooks.before_store:
        step = before_store(run, step)
    ids: npt.NDArray[np.int64] = run.replay.add(
        obs=step.obs,
        action=step.action,
        reward=step.reward,
        next_obs=step.next_obs,
        terminated=step.terminated,
        truncated=step.truncated,
        final_obs=step.final_obs,
    )
    return ids


def _replay(run: Run) -> None:
    """Learn from one batch of what is stored."""
    try:
        batch = run.replay.sample(run.learner.batch_size, progress=run.clock.progress)
    except EmptyBufferError as error:
        raise EmptyBufferError(
            f"at step {run.clock.steps:,} there is no batch to learn from: {error}; raise `learning_starts`, "
            f"{run.learner.learning_starts:,} of {type(run.learner).__name__}"
        ) from error
    for on_draw in run.hooks.on_draw:
        on_draw(run, batch)
    update = learn_from(batch, run)
    for on_update in run.hooks.on_update:
        on_update(run, update, batch)


def learn_from(batch: Batch, run: TrainingRun) -> Update:
    """Learn from a batch, and give back to the sampler what it asks for."""
    if run.feedback == "reducible_loss":  # L_online − L_target of every row
        agents = cast("TargetAgents", run.agents)  # the run made sure
        target_q = target_values(agents, batch)
        seen = cast("ValueUpdate", agents.update(batch))
        give_back(run.replay, batch.id, reducible_loss(agents, seen, target_q))
        return seen
    update = run.agents.update(batch)
    if run.feedback is not None:
        give_back(run.replay, batch.id, update.td_error)
    return update
