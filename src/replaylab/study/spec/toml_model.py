"""The study file as it is written: every table and key, with its rule, its default and its meaning.

`StudyToml`, at the end, is the file; the tables above it are its parts. Nothing is filled in or combined here:
`replaylab.study.spec.resolve` does that. docs/laboratory/studies.md shows a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from datetime import date, time
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from replaylab.learners.training.configuration import IN_STUDIES, REQUIRED, Fitting, InStudy
from replaylab.study.spec.components import Part
from replaylab.study.spec.declared_contrasts import DeclaredContrast, Score
from replaylab.study.spec.display_text import Answers, Factor, Prose, ReferenceLine, Table, Title, line

MOST_SEEDS = 100_000

ID = "id"
"""The key in ``[env_options.NAME]`` that makes NAME a custom name of a Gymnasium id. No constructor has an argument of
that name, because Gymnasium's own has it."""

Entry = TypeVar("Entry", bound=Hashable)


def _differ(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if twice := sorted(str(entry) for entry, count in Counter(entries).items() if count > 1):
        raise ValueError(f"must list each entry once ({', '.join(twice)} appears more than once)")
    return entries


def _seeds(value: Any) -> Any:
    """Return the seeds that a count stands for."""
    listed = isinstance(value, list | tuple)
    if not listed and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError("must be a count of at least 1, or a list of seeds")
    if (len(value) if listed else value) > MOST_SEEDS:
        raise ValueError(f"must be at most {MOST_SEEDS:,} seeds")
    return value if listed else tuple(range(value))


def _env_options(table: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(env_id := table.get(ID, "it"), str) or not env_id:
        raise ValueError(f"must hold as `{ID}` a Gymnasium id, a text")
    for option, value in table.items():
        _check_plain(option, value)
    return table


def _check_plain(option: str, value: Any) -> None:
    """Refuse values that identify no run, at any depth: TOML's dates and times."""
    if isinstance(value, date | time):
        raise ValueError(f"must hold as `{option}` a number, text, list or table, not {value!r} (write it as a text)")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _check_plain(option, inner)


def _varied(value: Any) -> Any:
    return line(value) if isinstance(value, str) else value


def _learner_changes(changes: dict[str, Any]) -> dict[str, Any]:
    if "type" in changes:
        raise ValueError(
            "must change settings of the learners, not their type (declare another learner, and name it in the "
            "strategy's `learners`)"
        )
    return changes


Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
EnvironmentId = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(line)]
Environments = Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]
EnvOptions = Annotated[dict[str, Any], AfterValidator(_env_options)]
Count = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...],
    Field(min_length=1),
    BeforeValidator(_seeds),
    AfterValidator(_differ),
]
Varied = Annotated[Any, AfterValidator(_varied)]
Metric = Annotated[str, Field(min_length=1), AfterValidator(line)]
Metrics = Annotated[tuple[Metric, ...], AfterValidator(_differ)]


class LearnerTable(Part):
    """``[learners.NAME]``: a learner. The keys that are not listed here are its settings."""

    title: Title | None = None
    """Its name in reports; None: NAME."""

    environments: Environments | None = None
    """Those of the study's environments that it learns; None: all."""

    vary: dict[str, Annotated[tuple[Varied, ...], Field(min_length=1)]] = {}
    """Values of settings. The table stands for one learner for each combination, with names such as
    NAME.gamma-0.9.loss-huber."""

    factors: dict[str, Factor] = {}
    """Labels, by which contrasts select."""


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


class StrategyTable(LearnerTable):
    """``[strategies.NAME]``: a sampler. The keys that are not listed here are its options.

    A strategy of type ``tape`` learns, update by update, from the ids that runs of another strategy, ``of``, drew in
    the same environment with the same learner: each seed from the next seed of its chunk, the last seed from the first.
    One of type ``by_steps_to_end`` learns from steps as near to the ends of their episodes, and as old.
    """

    transforms: tuple[Part, ...] = ()
    """Transforms of drawn steps, such as ``{ type = "n_step", steps = 3 }``."""

    learner: Annotated[dict[str, Any], AfterValidator(_learner_changes)] = {}
    """Settings that replace those of the learners."""

    budget: Budget | None = None
    """In place of the study's; in the same unit."""

    learners: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    """Those of the study's learners that it runs with, by name, by the name of a table with ``vary``, or by the values
    of factors, as in ``{ gamma = 0.9 }``; None: all."""


class SettingsTable(Table):
    """A table of settings of a run; `TrainingConfig` declares their keys, rules, defaults and meanings."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


def _settings(table: str) -> Any:
    """Return the model of a table; of a default that fits the budget it has the one for a large budget."""

    def annotation(setting: InStudy) -> Any:
        if setting.kind is bool:
            return Annotated[bool, Field(strict=True)]
        return Annotated[int, Field(ge=setting.least, lt=2**63, strict=True)]

    def default(setting: InStudy) -> Any:
        if setting.default is REQUIRED:
            return ...
        return setting.default.most if isinstance(setting.default, Fitting) else setting.default

    settings = [setting for setting in IN_STUDIES.values() if setting.table == table]
    keys: dict[str, Any] = {setting.key: (annotation(setting), default(setting)) for setting in settings}
    return create_model(f"{table.title()}Table", __base__=SettingsTable, **keys)


if TYPE_CHECKING:
    EvaluationTable = SettingsTable
    LoggingTable = SettingsTable
    MeasuresTable = SettingsTable
    RunSettings = SettingsTable
else:
    EvaluationTable, LoggingTable, MeasuresTable = map(_settings, ("evaluation", "logging", "measures"))
    fields = {name: (setting.kind, ...) for name, setting in IN_STUDIES.items()}  # named as in `TrainingConfig`
    RunSettings = create_model("RunSettings", __base__=SettingsTable, **fields)


class Watch(Table):
    """The video of each chunk's first seed after its training; no number depends on it."""

    video: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 0
    """Environment steps of a greedy episode that are shown, at most; 0: none."""


class StudyToml(Table):
    """A study file."""

    name: Name
    """A short name; results go to results/NAME."""

    title: Prose = ""
    """The report's heading."""

    question: Prose = ""
    """The question that the report answers."""

    environments: Annotated[Environments, AfterValidator(_differ)]
    """Gymnasium ids, such as "CartPole-v1" or "my_module:MyEnv-v0", or names that `env_options` explains."""

    learners: Annotated[dict[Name, LearnerTable], Field(min_length=1)]
    """Learners, by name."""

    strategies: Annotated[dict[Name, StrategyTable], Field(min_length=1)]
    """Samplers, by name. Each strategy runs with each learner on each environment, if nothing else is written."""

    env_options: dict[EnvironmentId, EnvOptions] = {}
    """Arguments of an environment's constructor. With a key ``id`` the table's name is a custom name, listed in
    `environments`, of an environment of that id: a study can use one id with several sets of options."""

    seeds: Seeds
    """A count n, for 0 to n - 1; or a list."""

    chunk_size: Count = 10
    """Seeds that one worker trains together."""

    baseline: str = "uniform"
    """The strategy that the others are compared with."""

    budget: Budget
    """Length of every run. A budget in episodes is the unit of ``evaluation.every`` and ``logging.every`` as well."""

    evaluation: EvaluationTable
    """Evaluations of the greedy policy."""

    logging: LoggingTable = LoggingTable()
    """Periods of the metrics of training, and which of them are recorded."""

    measures: MeasuresTable = MeasuresTable()
    """Period of the measures of drawn batches."""

    watch: Watch = Watch()
    """Videos of single runs in the report."""

    scores: dict[EnvironmentId, Score] = {}
    """Scales of returns, so that environments can be averaged."""

    equivalence: dict[EnvironmentId, Positive] = {}
    """Differences from the baseline up to this size do not matter, in the return's unit."""

    metrics: Metrics = ()
    """Further metrics whose differences from the baseline are tested."""

    contrasts: tuple[DeclaredContrast, ...] = ()
    """Questions, declared before the data are collected; `replaylab.study.spec.contrasts` explains them."""

    answers: Answers | None = None
    """The report's first sentence, by the verdict on the primary contrast or the only comparison."""

    reference: dict[EnvironmentId, ReferenceLine] = {}
    """A line to compare an environment's learning curves with."""

    core_minutes: Positive | None = None
    """Training time of all runs on one core, measured once, which `study list` shows; None: unknown."""
