"""Whether a population can be run at all, told before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from replaylab import errors
from replaylab.errors import MissingExtraError, NonFiniteError, ReplayError, SpecError
from replaylab.study.execution.worker_process import ENDED, WorkerProcess
from replaylab.study.plan.populations import Population
from replaylab.study.spec.components import LEARNERS, STRATEGIES, TRANSFORMS, build


def check_all(populations: Iterable[Population]) -> None:
    """Raise as `check_population` does for the first population that cannot be run.

    They are tried in a worker: what hangs, crashes or exits there can be ended, and does not end this process.
    """
    worker = None
    try:
        for one in populations:
            worker = worker or WorkerProcess()
            message = worker.ask(one, check=True)
            if message["event"] == ENDED:  # its own run tells it
                worker.end()
                worker = None
            elif "refused" in message:
                raise getattr(errors, message["refused"], SpecError)(message["message"])
    finally:
        if worker is not None:
            worker.end()


def check_population(population: Population) -> None:
    """Raise the error that training would soon end with, if any, by training a little of it.

    What breaks in the environment's or the user's own code is no such error: the run itself tells it with its
    traceback, and others go on.

    Raises:
        SpecError: as `replaylab.learners.training.preflight.check`, with the population named.
        MissingExtraError: what it needs is not installed.
    """
    from replaylab.learners.evaluation.value_error import OptimumDistance
    from replaylab.learners.training.preflight import check
    from replaylab.learners.training.state import Job

    part = population
    learner, sampler = build(part.learner_part, LEARNERS), build(part.strategy_part, STRATEGIES)
    transforms = [build(one, TRANSFORMS) for one in part.transforms]
    try:
        total: dict[str, Any] = {f"total_{part.unit}": part.steps}
        job = Job(part.environment, learner, sampler, transforms=transforms, env_options=part.env_options, **total)
        check(job, replicas=len(part.seeds), visits=part.visits)
        if part.value_error:
            OptimumDistance(part.environment, learner, part.env_options)
    except MissingExtraError:
        raise
    except NonFiniteError:  # of one seed, which may not even be the study's: its own run tells it
        return
    except ReplayError as error:
        raise SpecError(f"{part.label} cannot be run: {error}") from error
    except (Exception, SystemExit):  # its own run tells it, with its traceback
        return
