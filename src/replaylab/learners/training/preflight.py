"""Whether a job can be trained at all, found out by training a little of it."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from replaylab.learners.api.protocols import Learner
from replaylab.learners.training import env_state as continuing
from replaylab.learners.training.loop import turn
from replaylab.learners.training.metrics_recorder import Recorder
from replaylab.learners.training.state import Job, Run, states_of

MOST_STEPS = 1_000
"""Of what is stored for a trial."""


def check(job: Job, *, replicas: int = 1, visits: bool = False) -> None:
    """Raise the error that training would soon end with, if any.

    One seed is trained up to its first update, with a small buffer, from which it learns early.

    Args:
        job: What is to be trained.
        replicas: How many seeds at once.
        visits: Whether states are to be counted.

    Raises:
        ReplayError: As `train` would: the environment cannot be made, the learner, the sampler or a transform cannot
            handle it, they do not fit each other, or what they need is not installed.
    """
    states = states_of(job) if visits else 0
    learner = _early(job.learner)
    steps = max(learner.learning_starts, 1) if learner is not job.learner else 1
    run = Run(replace(job, learner=learner, total_steps=steps + 1, total_episodes=None), [0])
    try:
        if job.total_episodes is not None and replicas > 1:
            continuing.check(run.env, job.env_id, "a budget of episodes for several seeds at once")
        recorder = Recorder([0], 1, states=states)
        for _ in range(steps):
            turn(run, recorder)
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
    known: set[str] = {one.name for one in fields(learner)} if is_dataclass(learner) else set()
    return replace(learner, **wanted) if wanted.keys() <= known else learner  # type: ignore[type-var]
