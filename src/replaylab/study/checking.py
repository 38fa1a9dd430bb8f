"""Whether a population can be run at all, told before anything is trained."""

from __future__ import annotations

from replaylab.errors import ConfigError, SpecError
from replaylab.study.parts import LEARNERS, STRATEGIES, TRANSFORMS, build
from replaylab.study.plan import Population


def check_population(population: Population) -> None:
    """Raise the error that training would end with at its start, if any.

    Raises:
        SpecError: as `replaylab.learners.run.check`, with the population named.
    """
    from replaylab.learners.run import Job, check
    from replaylab.learners.value_error import OptimumDistance

    part = population
    total = {f"total_{part.unit}": part.steps}
    learner, sampler = build(part.learner_part, LEARNERS), build(part.strategy_part, STRATEGIES)
    transforms = [build(one, TRANSFORMS) for one in part.transforms]
    try:
        check(
            Job(part.environment, learner, sampler, transforms=transforms, env_options=part.env_options, **total)  # type: ignore[arg-type]
        )
        if part.value_error:
            OptimumDistance(part.environment, learner, part.env_options)
    except ConfigError as error:
        raise SpecError(f"{part.label} cannot be run: {error}") from error
