"""The tables of a study file as data; `replaylab.study.spec.study_file` documents, reads and checks them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study.spec.components import Part
from replaylab.study.spec.declared_contrasts import DeclaredContrast, Score
from replaylab.study.spec.display_text import Answers, Line, Prose, ReferenceLine, Table, Titles
from replaylab.study.spec.named_environments import check_options, made_of
from replaylab.study.spec.parameter_grids import Origin
from replaylab.study.spec.resolved_overrides import ResolvedOverrides, resolved_overrides, without_code
from replaylab.study.spec.run_settings import EvaluationTable, LoggingTable, MeasuresTable

MOST_SEEDS = 100_000

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
EnvironmentId = Annotated[Line, Field(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Budget(Table):
    """The length of a run: the study's, or that of a strategy with its own budget."""

    steps: Count | None = None
    """Environment steps of one run."""

    episodes: Count | None = None
    """Or its episodes."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.steps is None) == (self.episodes is None):
            raise ValueError("must hold either `steps` or `episodes`")
        return self

    @property
    def total(self) -> int:
        """The budget as a number."""
        return self.steps or self.episodes or 0

    @property
    def unit(self) -> Literal["steps", "episodes"]:
        """Unit of the budget."""
        return "steps" if self.steps else "episodes"

    @property
    def counted(self) -> str:
        """Unit of the budget in words."""
        return "environment steps" if self.steps else "episodes"

    def __str__(self) -> str:
        return f"{self.total:,} {self.counted}"


class Watch(Table):
    """The video of each chunk's first seed after its training; no number depends on it."""

    video: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 0
    """Environment steps of a greedy episode that are shown, at most; 0: none."""


class Overrides(Table):
    """The settings of a strategy that differ from the rest of the study."""

    transforms: tuple[Part, ...] = ()
    """Transforms of drawn steps."""

    learner: dict[str, Any] = {}
    """Settings that replace those of the learners."""

    budget: Budget | None = None
    """In place of the study's; in the same unit."""

    environments: Annotated[tuple[EnvironmentId, ...], Field(min_length=1)] | None = None
    """Names of the environments it runs on; None: all of the study's."""

    learners: tuple[Name, ...] | None = None
    """Names of the learners it runs with; None: all of the study's."""


class Origins(Table):
    """The values of ``vary`` and ``factors`` of strategies and learners, by name."""

    strategies: dict[Name, Origin] = {}
    learners: dict[Name, Origin] = {}


class StudyTables(Table):
    """The tables of a study, and values derived from them; `Spec` reads and checks them."""

    name: Name
    title: Prose = ""
    question: Prose = ""
    environments: Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]
    learners: Annotated[dict[Name, Part], Field(min_length=1)]
    strategies: Annotated[dict[Name, Part], Field(min_length=1)]
    titles: Titles = Titles()
    overrides: dict[Name, Overrides] = {}
    overridden: dict[Name, dict[Name, ResolvedOverrides]] = {}
    learner_environments: dict[Name, Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]] = {}
    origins: Origins = Origins()
    env_options: Annotated[dict[EnvironmentId, dict[str, Any]], AfterValidator(check_options)] = {}
    environment_code: dict[EnvironmentId, str] = {}
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    chunk_size: Count = 10
    baseline: str = "uniform"
    budget: Budget
    evaluation: EvaluationTable
    logging: LoggingTable = LoggingTable()
    measures: MeasuresTable = MeasuresTable()
    watch: Watch = Watch()
    scores: dict[EnvironmentId, Score] = {}
    equivalence: dict[EnvironmentId, Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)]] = {}
    metrics: tuple[Annotated[Line, Field(min_length=1)], ...] = ()
    contrasts: tuple[DeclaredContrast, ...] = ()
    answers: Answers | None = None
    reference: dict[EnvironmentId, ReferenceLine] = {}
    core_minutes: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)] | None = None
    """Training time of all runs on one core, measured once, which `study list` shows; None: unknown."""

    def title_of(self, strategy: str) -> str:
        """Return what reports call a strategy."""
        return self.titles.strategies.get(strategy, strategy)

    def place_of(self, environment: str, learner: str) -> str:
        """Return what reports call an environment with a learner, which is named if the environment has several."""
        learners = {k for e, k, _ in self.cells if e == environment}
        title = self.titles.learners.get(learner, learner)
        return f"{environment}, {title}" if len(learners) > 1 else environment

    @property
    def names_learners(self) -> bool:
        """Whether some environment has several learners, so that reports name them."""
        return any(self.place_of(e, k) != e for e in self.environments for k in self.learners)

    def budget_of(self, strategy: str) -> Budget:
        """Return a strategy's budget."""
        return self.overrides.get(strategy, Overrides()).budget or self.budget

    @property
    def judged_by_role(self) -> bool:
        """Whether a contrast is primary, so that all are judged by their roles, as means over seeds."""
        return any(contrast.primary for contrast in self.contrasts)

    def made_of(self, environment: str) -> tuple[str, dict[str, Any]]:
        """Return the Gymnasium id of one of the study's environments, and its constructor's arguments."""
        return made_of(environment, self.env_options.get(environment, {}))

    def environments_of(self, strategy: str, learner: str | None = None) -> tuple[str, ...]:
        """Return the environments a strategy runs on, with a learner or with any."""
        restricted = self.overrides.get(strategy, Overrides()).environments
        of_learner = self.environments if learner is None else self.learner_environments.get(learner, self.environments)
        return tuple(e for e in self.environments if (restricted is None or e in restricted) and e in of_learner)

    def learners_of(self, strategy: str) -> tuple[str, ...]:
        """Return the learners a strategy runs with."""
        restricted = self.overrides.get(strategy, Overrides()).learners
        return tuple(name for name in self.learners if restricted is None or name in restricted)

    def learner_of(self, strategy: str, learner: str) -> Part:
        """Return a learner as a strategy has it, every setting spelled out."""
        return self._overridden(strategy, learner).learner or self.learners[learner]

    def transforms_of(self, strategy: str, learner: str) -> tuple[Part, ...]:
        """Return a strategy's transforms, every option spelled out; an n-step return has the learner's discount."""
        return self._overridden(strategy, learner).transforms

    def _overridden(self, strategy: str, learner: str) -> ResolvedOverrides:
        """Return the overrides of a strategy with a learner; resolved now if the study has no record of them."""
        recorded = self.overridden.get(strategy, {}).get(learner)
        if recorded is not None:
            return recorded
        overrides = self.overrides.get(strategy, Overrides())
        return resolved_overrides(self.learners[learner], overrides.learner, overrides.transforms, strategy, self.name)

    def all_overridden(self) -> dict[str, dict[str, ResolvedOverrides]]:
        """Resolve the overrides of all strategies that change learners or have transforms."""
        fresh = self.model_copy(update={"learners": {k: without_code(p) for k, p in self.learners.items()}})
        return {
            name: {learner: fresh._overridden(name, learner) for learner in self.learners_of(name)}
            for name, overrides in self.overrides.items()
            if overrides.learner or overrides.transforms
        }

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
