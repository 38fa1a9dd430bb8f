"""A study with everything filled in, as `study.json` stores it, and what follows from it.

`replaylab.study.spec.resolve` makes it of a study file; `Spec` is the same with its rules checked.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study.spec.components import Part
from replaylab.study.spec.declared_contrasts import DeclaredContrast, Score
from replaylab.study.spec.display_text import Answers, Factor, Prose, ReferenceLine, Table, Title
from replaylab.study.spec.toml_model import (
    ID,
    Budget,
    Count,
    EnvironmentId,
    Environments,
    EnvOptions,
    EvaluationTable,
    LoggingTable,
    MeasuresTable,
    Metrics,
    Name,
    Positive,
    Seeds,
    Watch,
)


class Titles(Table):
    """Titles of strategies and learners in reports, by name."""

    strategies: dict[str, Title] = {}
    learners: dict[str, Title] = {}


class Overrides(Table):
    """The settings of a strategy that differ from the rest of the study, as written; `StrategyTable` explains them."""

    transforms: tuple[Part, ...] = ()
    learner: dict[str, Any] = {}
    budget: Budget | None = None
    environments: Environments | None = None
    learners: tuple[str, ...] | None = None


class ResolvedOverrides(Table):
    """One strategy with one learner, every option filled in."""

    learner: Part | None = None
    """None: as the study has it."""

    transforms: tuple[Part, ...] = ()


class Origin(Table):
    """The table that a strategy or learner was made of, and its values of ``vary`` and ``factors``."""

    table: str
    varied: dict[str, Factor] = {}
    labels: dict[str, Factor] = {}

    @property
    def factors(self) -> dict[str, Factor]:
        """Everything it can be selected by, apart from its names."""
        return self.varied | self.labels


class Origins(Table):
    """Origins of strategies and learners whose tables have ``vary`` or ``factors``, by name."""

    strategies: dict[Name, Origin] = {}
    learners: dict[Name, Origin] = {}


class StudyTables(Table):
    """A study with every default filled in; `StudyToml` explains the tables that it takes from the file.

    Strategies and learners are those that ``vary`` stands for, and hold only the options of their types. The other keys
    of their tables are in separate fields.
    """

    name: Name
    title: Prose = ""
    question: Prose = ""
    environments: Environments
    learners: Annotated[dict[Name, Part], Field(min_length=1)]
    strategies: Annotated[dict[Name, Part], Field(min_length=1)]
    titles: Titles = Titles()
    overrides: dict[Name, Overrides] = {}
    """As written, of the strategies that have any."""

    overridden: dict[Name, dict[Name, ResolvedOverrides]] = {}
    """The same by strategy and learner, resolved when the study file was read. So a folder can be read without the code
    that its runs were trained with, and another version's defaults change no id of stored runs."""

    learner_environments: dict[Name, Environments] = {}
    origins: Origins = Origins()
    env_options: dict[EnvironmentId, EnvOptions] = {}
    environment_code: dict[EnvironmentId, str] = {}
    """The first digits of the SHA-256 of the modules that ids of environments name."""

    seeds: Seeds
    chunk_size: Count = 10
    baseline: str = "uniform"
    budget: Budget
    evaluation: EvaluationTable
    logging: LoggingTable = LoggingTable()
    measures: MeasuresTable = MeasuresTable()
    watch: Watch = Watch()
    scores: dict[EnvironmentId, Score] = {}
    equivalence: dict[EnvironmentId, Positive] = {}
    metrics: Metrics = ()
    contrasts: tuple[DeclaredContrast, ...] = ()
    answers: Answers | None = None
    reference: dict[EnvironmentId, ReferenceLine] = {}
    core_minutes: Positive | None = None

    def title_of(self, strategy: str) -> str:
        """Return what reports call a strategy."""
        return self.titles.strategies.get(strategy, strategy)

    def learner_title_of(self, learner: str) -> str:
        """Return what reports call a learner."""
        return self.titles.learners.get(learner, learner)

    def place_of(self, environment: str, learner: str) -> str:
        """Return what reports call an environment with a learner, which is named if the environment has several."""
        learners = {k for e, k, _ in self.cells if e == environment}
        return f"{environment}, {self.learner_title_of(learner)}" if len(learners) > 1 else environment

    @property
    def names_learners(self) -> bool:
        """Whether some environment has several learners, so that reports name them."""
        return any(self.place_of(e, k) != e for e in self.environments for k in self.learners)

    def overrides_of(self, strategy: str) -> Overrides:
        """Return a strategy's overrides, as written."""
        return self.overrides.get(strategy, Overrides())

    def budget_of(self, strategy: str) -> Budget:
        """Return a strategy's budget."""
        return self.overrides_of(strategy).budget or self.budget

    @property
    def judged_by_role(self) -> bool:
        """Whether a contrast is primary, so that all are judged by their roles, as means over seeds."""
        return any(contrast.primary for contrast in self.contrasts)

    def made_of(self, environment: str) -> tuple[str, dict[str, Any]]:
        """Return the Gymnasium id of one of the study's environments, and its constructor's arguments."""
        return made_of(environment, self.env_options.get(environment, {}))

    def environments_of(self, strategy: str, learner: str | None = None) -> tuple[str, ...]:
        """Return the environments a strategy runs on, with a learner or with any."""
        restricted = self.overrides_of(strategy).environments
        of_learner = self.environments if learner is None else self.learner_environments.get(learner, self.environments)
        return tuple(e for e in self.environments if (restricted is None or e in restricted) and e in of_learner)

    def learners_of(self, strategy: str) -> tuple[str, ...]:
        """Return the learners a strategy runs with."""
        restricted = self.overrides_of(strategy).learners
        return tuple(name for name in self.learners if restricted is None or name in restricted)

    def learner_of(self, strategy: str, learner: str) -> Part:
        """Return a learner as a strategy has it, every setting spelled out."""
        return self._overridden(strategy, learner).learner or self.learners[learner]

    def transforms_of(self, strategy: str, learner: str) -> tuple[Part, ...]:
        """Return a strategy's transforms, every option spelled out; an n-step return has the learner's discount."""
        return self._overridden(strategy, learner).transforms

    def _overridden(self, strategy: str, learner: str) -> ResolvedOverrides:
        return self.overridden.get(strategy, {}).get(learner, ResolvedOverrides())

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """Every environment, learner and strategy that are run together."""
        return [(e, k, s) for s in self.strategies for k in self.learners_of(s) for e in self.environments_of(s, k)]

    @property
    def run_settings(self) -> dict[str, Any]:
        """The settings of its tables, by the names of `TrainingConfig`."""
        return {name: getattr(getattr(self, setting.table), setting.key) for name, setting in IN_STUDIES.items()}

    @property
    def runs(self) -> int:
        """Number of runs: environments × learners × strategies × seeds, without what a strategy leaves out."""
        return len(self.cells) * len(self.seeds)


def made_of(environment: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an environment's Gymnasium id, and the arguments of its constructor."""
    return options.get(ID, environment), {key: value for key, value in options.items() if key != ID}


def module_of(env_id: str) -> str:
    """Return the module that Gymnasium imports before it looks an id up, as in "my_envs:Mine-v0"; "" for none."""
    return env_id.partition(":")[0] if ":" in env_id else ""
