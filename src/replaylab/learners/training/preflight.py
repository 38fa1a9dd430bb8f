"""Check that a configuration can be trained, by training it briefly."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from replaylab.envs import env_state
from replaylab.learners.api.answers import actions_of
from replaylab.learners.api.protocols import Learner
from replaylab.learners.api.whole_algorithm import WholeAlgorithm
from replaylab.learners.training.algorithm_run import train_algorithm
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.loop import loop_of
from replaylab.learners.training.state import SEVERAL_IN_EPISODES, Run
from replaylab.trees import map_leaves

MOST_STEPS = 1_000
"""Largest number of steps stored for a trial."""


def check_trainable(configuration: TrainingConfig, *, replicas: int = 1, seed: int = 0) -> None:
    """Raise the error that training would raise early, if any.

    The run of all seeds is made, with its complete buffer, and dropped. Then one seed is trained up to its first
    update, with a small buffer, from which it learns early. It takes one greedy action, but no episode is evaluated.

    Args:
        configuration: The configuration to check.
        replicas: Number of seeds trained at once.
        seed: The seed that is trained.

    Raises:
        ReplayError: As `train` would: the environment cannot be made, the learner, the sampler or a transform cannot
            handle it, they do not fit each other, the buffer needs more memory than the machine has, or what they need
            is not installed.
        Exception: Whatever the environment's or other custom code raises.
    """
    if isinstance(configuration.learner, WholeAlgorithm):
        algorithm, steps = configuration.learner.early()
        brief: dict[str, Any] = {"total_steps": steps} if configuration.total_steps else {"total_episodes": 1}
        train_algorithm(replace(configuration, learner=algorithm, eval_every=None, **brief), [seed], ())
        return
    learner = _early(configuration.driven_learner)
    steps = max(learner.learning_starts, 1) if learner is not configuration.learner else 1
    envs = getattr(learner, "envs", 1)
    trial = replace(
        configuration, learner=learner, total_steps=steps + envs, total_episodes=None, log_every=1, eval_every=None
    )
    loop = loop_of(configuration)
    loop.make(configuration, range(replicas)).env.close()
    run = loop.make(trial, [seed])
    try:
        run.begin()
        if configuration.total_episodes is not None and replicas > 1:
            env_state.check(run.env, configuration.env_id, SEVERAL_IN_EPISODES)
        for _ in range(-(-steps // envs)):
            loop.turn(run)
        if isinstance(run, Run):
            actions_of(run.agents, map_leaves(lambda part: part[:, None], run.obs), 1, 1, explore=False)
    finally:
        run.env.close()


def _early(learner: Learner) -> Learner:
    """Return a learner that stores little and updates as soon as it has two batches; if it has such settings."""
    starts = min(learner.learning_starts, 2 * max(learner.batch_size, 1))
    wanted: dict[str, Any] = {
        "capacity": min(learner.capacity, max(MOST_STEPS, starts)),
        "learning_starts": starts,
        "train_period": 1,
        "gradient_steps": 1,
    }
    known: set[str] = {field.name for field in fields(learner)} if is_dataclass(learner) else set()
    return replace(learner, **wanted) if wanted.keys() <= known else learner  # type: ignore[type-var]
