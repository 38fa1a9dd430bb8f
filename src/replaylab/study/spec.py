"""What a study is, as data: a TOML file, validated.

A `Spec` holds everything that decides a study's numbers, with every default filled in, so the same file run
next year under other defaults is a different study, and says so. Shape of a file::

    name = "quick"
    title = "Which replay strategy learns CartPole best?"
    environments = ["CartPole-v1"]
    seeds = 10                      # 0 to 9; or a list of your own
    population = 10                 # seeds trained together in one worker
    baseline = "uniform"            # the strategy the others are compared with

    [budget]
    steps = 20_000                  # environment steps of every run

    [evaluation]
    every = 1_000                   # environment steps
    episodes = 10

    [learners.dqn]
    type = "dqn"                    # the other keys are the learner's settings
    gamma = 0.99

    [strategies.uniform]
    type = "uniform"                # the other keys are the sampler's options
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from replaylab.errors import SpecError
from replaylab.study.parts import LEARNERS, STRATEGIES, Part, resolve
from replaylab.study.spec_errors import explain

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
EnvironmentId = Annotated[str, Field(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=1, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class _Table(BaseModel):
    """A TOML table: no unknown keys, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Budget(_Table):
    """How long every run is, the same for all strategies."""

    steps: Count
    """Environment steps of one run."""


class Evaluation(_Table):
    """Greedy evaluation on separate environments."""

    every: Count
    """Environment steps between evaluations."""

    episodes: Count = 10
    """Episodes of one evaluation; their mean return is one point of the learning curve."""


class Logging(_Table):
    """What is written down while training."""

    every: Count = 500
    """Environment steps between rows of ``train/...`` and ``replay/...``."""


class Spec(_Table):
    """A validated study. See the module's docstring for the file it is read from."""

    name: Name
    title: str = ""
    question: str = ""
    environments: Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]
    learners: Annotated[dict[Name, Part], Field(min_length=1)]
    strategies: Annotated[dict[Name, Part], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    population: Count = 10
    baseline: str = "uniform"
    budget: Budget
    evaluation: Evaluation
    logging: Logging = Logging()

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_to_list(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 1:
                raise ValueError("must be a count of at least 1, or a list of seeds")
            return tuple(range(value))
        if not isinstance(value, list | tuple):
            raise ValueError("must be a count of at least 1, or a list of seeds")
        return value

    @field_validator("seeds", "environments")
    @classmethod
    def _no_duplicates(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        twice = sorted({str(v) for v in value if value.count(v) > 1})
        if twice:
            raise ValueError(f"must hold each entry once, but {', '.join(twice)} is there more than once")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.baseline not in self.strategies:
            raise ValueError(
                f"`baseline` must name one of the strategies ({', '.join(self.strategies)}), but got {self.baseline!r}"
            )
        if self.evaluation.every > self.budget.steps:
            raise ValueError(
                f"`evaluation.every` must be at most `budget.steps` = {self.budget.steps}, "
                f"but got {self.evaluation.every}"
            )
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read, validate and complete a study file.

        Raises:
            SpecError: the file is missing or no TOML, a key is unknown, or a value breaks a rule; the message
                names the file, the key's path, the rule and the value.
        """
        file = Path(path)
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"{file}: cannot be read: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"{file}: is not valid TOML: {error}.") from error
        return cls.from_table(table, source=str(file))

    @classmethod
    def from_table(cls, table: dict[str, Any], *, source: str = "study") -> Self:
        """Validate and complete a study given as nested tables; ``source`` is named in errors.

        Raises:
            SpecError: as in `from_toml`.
        """
        try:
            spec = cls.model_validate(table)
        except ValidationError as error:
            raise SpecError(explain(error, cls, source)) from error
        learners = {k: resolve(p, LEARNERS, f"learners.{k}", source) for k, p in spec.learners.items()}
        strategies = {k: resolve(p, STRATEGIES, f"strategies.{k}", source) for k, p in spec.strategies.items()}
        return spec.model_copy(update={"learners": learners, "strategies": strategies})

    @property
    def runs(self) -> int:
        """Number of runs: environments × learners × strategies × seeds."""
        return len(self.environments) * len(self.learners) * len(self.strategies) * len(self.seeds)
