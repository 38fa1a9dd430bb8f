"""Whether a population can be run at all, told before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable

from replaylab import errors
from replaylab.errors import MissingExtraError, NonFiniteError, ReplayError, SpecError
from replaylab.study.execution.worker_process import ENDED, WorkerProcess
from replaylab.study.plan.populations import Population


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
        SpecError: as `replaylab.learners.training.preflight.check_trainable`, with the population named.
        MissingExtraError: what it needs is not installed.
    """
    from replaylab.learners.training.preflight import check_trainable

    try:
        check_trainable(population.configuration(), replicas=len(population.seeds))
    except MissingExtraError:
        raise
    except NonFiniteError:  # of one seed, which may not even be the study's: its own run tells it
        return
    except ReplayError as error:
        raise SpecError(f"{population.label} cannot be run: {error}") from error
    except (Exception, SystemExit):  # its own run tells it, with its traceback
        return
