"""What a study is, as data: a TOML file, validated.

A `Spec` holds everything that decides a study's numbers, with every default filled in, so the same file run
next year under other defaults is a different study, and says so. Shape of a file::

    name = "quick"
    title = "Which replay strategy learns CartPole best?"
    environments = ["CartPole-v1"]
    seeds = 10                      # 0 to 9; or a list of your own
    population = 10                 # seeds trained together in one worker
    baseline = "uniform"            # the strategy the others are compared with
    keep_tapes = false              # whether recorded draws stay in the folder when all that replay them are there
    metrics = ["eval/value_error"]  # further metrics whose differences the report tests

    [budget]
    steps = 20_000                  # environment steps of every run; or instead: episodes = 300

    [evaluation]                    # the keys of this table, of `logging` and of `measures` are settings of a run,
    every = 1_000                   # declared in learners/training/configuration.py; in environment steps
    episodes = 10

    [measures]
    every = 2_500                   # environment steps; 0: none

    [watch]                         # looks that the report shows, of each cell's first seed; they change no number
    steps = 6                       # in each row of the sheet of replayed frames, where these are pictures; 0: none
    video = 200                     # environment steps of a greedy episode, as a moving picture; 0 (default): none

    [learners.dqn]
    type = "dqn"                    # the other keys are the learner's settings
    gamma = 0.99
    environments = ["CartPole-v1"]  # only these of the study's

    [strategies.uniform]
    type = "uniform"                # the other keys are the sampler's options, and these:

    [strategies.hindsight]
    type = "uniform"
    transforms = [{ type = "hindsight", ratio = 4 }]
    learner = { double = false }    # other settings of the learners, for this strategy
    budget = { steps = 40_000 }     # another budget
    environments = ["replaylab/BitFlip-v0"]         # only these of the study's
    learners = ["dqn"]                              # only these of the study's

    [strategies.prioritized]                        # one strategy for each combination of values, named
    type = "prioritized"                            # prioritized.alpha-0.5.beta-0 and so on; learners too
    vary = { alpha = [0.5, 1.0], beta = [0.0, 1.0] }
    factors = { choice = "td" }                     # labels of your own, for contrasts

    [strategies.placebo]            # learns from what the runs of another strategy drew, of another seed each
    type = "tape"
    of = "uniform"

    [env_options."replaylab/BitFlip-v0"]            # for an environment's constructor
    n = 10

    [env_options.long_chain]        # a name of your own in `environments`: the same id may come with other options
    id = "replaylab/BitFlip-v0"
    n = 15

    [looks]                         # with how many seeds the study is going to be reported: see planned_looks.py
    seeds = [10, 20, 40]

    [scores."CartPole-v1"]          # so that environments can be averaged: low becomes 0, high becomes 1
    low = 9.4
    high = 500.0

    [equivalence]                   # differences from the baseline up to this size do not matter, in the return's unit
    "CartPole-v1" = 10.0

    [[contrasts]]                   # what is asked, declared before the data are there; see questions.py
    name = "weights"
    more = { beta = 1.0 }
    less = { beta = 0.0 }
    equivalence = 0.05

A budget in episodes is the unit of ``evaluation.every`` and ``logging.every`` as well.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from replaylab.errors import SpecError
from replaylab.learners.training.configuration import IN_STUDIES
from replaylab.study.spec.cells import check_cells
from replaylab.study.spec.components import LEARNERS, STRATEGIES, Part, resolve
from replaylab.study.spec.contrasts import DeclaredContrast, Score, resolve_contrasts
from replaylab.study.spec.custom_components import code_of_file
from replaylab.study.spec.display_text import Line, Prose
from replaylab.study.spec.errors import MADE, explain, unknown_key
from replaylab.study.spec.named_environments import check_options, made_of, module_of
from replaylab.study.spec.parameter_grids import Origin, chosen_learners, expanded
from replaylab.study.spec.planned_looks import SIGNIFICANCE, PlannedLooks
from replaylab.study.spec.resolved_overrides import ResolvedOverrides, resolved_overrides, without_code
from replaylab.study.spec.run_settings import EvaluationTable, LoggingTable, MeasuresTable
from replaylab.study.spec.tapes import check_tapes

MOST_SEEDS = 100_000

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
EnvironmentId = Annotated[Line, Field(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class _Table(BaseModel):
    """A TOML table: no unknown keys, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Budget(_Table):
    """How long every run is, the same for all strategies that do not say otherwise."""

    steps: Count | None = None
    """Environment steps of one run."""

    episodes: Count | None = None
    """Or its episodes."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.steps is None) == (self.episodes is None):
            raise ValueError("must hold either `steps` or `episodes`")
        return self

    @property
    def total(self) -> int:
        """The budget as a number."""
        return self.steps or self.episodes or 0

    @property
    def unit(self) -> Literal["steps", "episodes"]:
        """What it counts."""
        return "steps" if self.steps else "episodes"

    @property
    def counted(self) -> str:
        """What it counts, in words."""
        return "environment steps" if self.steps else "episodes"

    def __str__(self) -> str:
        return f"{self.total:,} {self.counted}"


class Watch(_Table):
    """What is to be seen of each population's first seed when it has been trained; no number depends on it."""

    steps: Annotated[int, Field(ge=0, le=60, strict=True)] = 6
    """Steps in each row of the sheet of what is replayed, where observations are pictures; 0: no sheet."""

    video: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 0
    """Environment steps of a greedy episode that are shown, at most; 0: none."""


class Overrides(_Table):
    """What a strategy does otherwise than the rest of the study."""

    transforms: tuple[Part, ...] = ()
    """What a drawn step becomes."""

    learner: dict[str, Any] = {}
    """Settings of the learners, in place of theirs."""

    budget: Budget | None = None
    """In place of the study's; in the same unit."""

    environments: Annotated[tuple[EnvironmentId, ...], Field(min_length=1)] | None = None
    """Which of the study's environments; None: all."""

    learners: tuple[Name, ...] | None = None
    """Which of the study's learners; None: all."""


class Origins(_Table):
    """What ``vary`` and ``factors`` say of strategies and learners, by their names."""

    strategies: dict[Name, Origin] = {}
    learners: dict[Name, Origin] = {}


class Spec(_Table):
    """A validated study. See the module's docstring for the file it is read from."""

    name: Name
    title: Prose = ""
    question: Prose = ""
    environments: Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]
    learners: Annotated[dict[Name, Part], Field(min_length=1)]
    strategies: Annotated[dict[Name, Part], Field(min_length=1)]
    overrides: dict[Name, Overrides] = {}
    overridden: dict[Name, dict[Name, ResolvedOverrides]] = {}
    learner_environments: dict[Name, Annotated[tuple[EnvironmentId, ...], Field(min_length=1)]] = {}
    origins: Origins = Origins()
    env_options: dict[EnvironmentId, dict[str, Any]] = {}
    environment_code: dict[EnvironmentId, str] = {}
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    population: Count = 10
    keep_tapes: Annotated[bool, Field(strict=True)] = False
    baseline: str = "uniform"
    budget: Budget
    evaluation: EvaluationTable
    logging: LoggingTable = LoggingTable()
    measures: MeasuresTable = MeasuresTable()
    watch: Watch = Watch()
    scores: dict[EnvironmentId, Score] = {}
    equivalence: dict[EnvironmentId, Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=True)]] = {}
    looks: PlannedLooks | None = None
    metrics: tuple[Annotated[Line, Field(min_length=1)], ...] = ()
    contrasts: tuple[DeclaredContrast, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        """Make one table of each combination that ``vary`` speaks of, and take overrides out of the options."""
        if not isinstance(value, dict) or not all(isinstance(value.get(k), dict) for k in ("learners", "strategies")):
            return value
        plain = {k: dict(one) if isinstance(one, dict) else one for k, one in value["learners"].items()}
        learners = expanded(plain, "learners", LEARNERS)
        strategies = expanded(value["strategies"], "strategies", STRATEGIES)
        given = value.get("origins") or {}  # those of a study.json
        if not isinstance(given, dict) or not all(isinstance(of, dict) for of in given.values()):
            return value
        made = {"learners": learners.origins, "strategies": strategies.origins}
        origins = given | {k: given.get(k, {}) | of for k, of in made.items()}
        for name, one in strategies.tables.items():
            if isinstance(one, dict) and "learners" in one:
                names = list(learners.tables)
                chosen = chosen_learners(one["learners"], origins["learners"], names, f"strategies.{name}")
                strategies.tables[name] = one | {"learners": chosen}
        limits = {k: one.pop("environments") for k, one in learners.tables.items() if _says(one, "environments")}
        if limits:
            value = value | {"learner_environments": limits}
        return cls._part_overrides(
            value | {"learners": learners.tables, "strategies": strategies.tables, "origins": origins}
        )

    @classmethod
    def _part_overrides(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Take what a strategy does otherwise than the study out of its sampler's options."""
        strategies = value["strategies"]
        if not all(isinstance(one, dict) for one in (*strategies.values(), value.get("overrides", {}))):
            return value
        names = Overrides.model_fields
        taken = {k: {n: one[n] for n in names if n in one} for k, one in strategies.items()}
        plain = {k: {n: v for n, v in one.items() if n not in names} for k, one in strategies.items()}
        overrides = {**value.get("overrides", {}), **{k: one for k, one in taken.items() if one}}
        return value | {"strategies": plain, "overrides": overrides}

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_to_list(cls, value: object) -> object:
        counted = isinstance(value, int) and not isinstance(value, bool)
        if (not counted or value < 1) and not isinstance(value, list | tuple):  # type: ignore[operator]
            raise ValueError("must be a count of at least 1, or a list of seeds")
        count = value if isinstance(value, int) else len(value)  # type: ignore[arg-type]
        if count > MOST_SEEDS:
            raise ValueError(f"must be at most {MOST_SEEDS:,} seeds")
        return tuple(range(count)) if counted else value

    @field_validator("env_options")
    @classmethod
    def _named(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return check_options(value)

    @field_validator("seeds", "environments", "metrics")
    @classmethod
    def _no_duplicates(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        twice = sorted(str(v) for v, count in Counter(value).items() if count > 1)
        if twice:
            raise ValueError(f"must list each entry once, but {', '.join(twice)} appears more than once")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._check_baseline()
        if self.looks is not None and len(self.seeds) not in self.looks.seeds:
            raise ValueError(
                f"`seeds` must be as many as at one of the `looks`, {self.looks}, but are {len(self.seeds)}"
            )
        if self.looks is not None and self.judged_by_role:
            raise ValueError(
                "`looks` must not stand beside a contrast that is `primary`: its verdict is read from an interval of a "
                "single look; leave one of the two out"
            )
        for strategy in self.strategies:
            self._check_budget(strategy, self.budget_of(strategy))
            self._check_learner(strategy)
        for name in (
            {e for one in self.overrides.values() for e in one.environments or ()}
            | {e for some in self.learner_environments.values() for e in some}
            | set(self.env_options)
            | set(self.scores)
            | set(self.equivalence)
        ):
            if name not in self.environments:
                raise ValueError(
                    f"`environments` must list every environment referenced elsewhere in the file, but lacks {name!r}"
                )
        referenced = [("strategies", set(self.overrides) - set(self.strategies))]
        for what, there in (("strategies", self.strategies), ("learners", self.learners)):
            referenced.append((f"origins.{what}", set(getattr(self.origins, what)) - set(there)))
        referenced.append(("learners", set(self.learner_environments) - set(self.learners)))
        referenced += [
            (f"strategies.{k}.learners", set(o.learners or ()) - set(self.learners)) for k, o in self.overrides.items()
        ]
        for where, names in referenced:
            if names:
                raise ValueError(f"`{where}` refers to {min(names)!r}, which the file does not define")
        check_tapes(self)
        resolve_contrasts(self)
        return self

    def _check_baseline(self) -> None:
        if self.baseline in self.strategies:
            return
        made = [name for name, origin in self.origins.strategies.items() if origin.table == self.baseline]
        named = made or list(self.strategies)
        why = ", a table that `vary` makes these of" if made else ""
        raise ValueError(
            f"`baseline` must name one of the strategies ({', '.join(named)}), but got {self.baseline!r}{why}"
        )

    def _check_budget(self, strategy: str, budget: Budget) -> None:
        if budget.unit != self.budget.unit:
            raise ValueError(f"`strategies.{strategy}.budget` must be in {self.budget.unit}, as `budget` is")
        if self.evaluation.every > budget.total:
            where = "budget" if budget == self.budget else f"strategies.{strategy}.budget"
            raise ValueError(
                f"`evaluation.every` must be at most `{where}.{budget.unit}` = {budget.total}, "
                f"but got {self.evaluation.every}"
            )

    def _check_learner(self, strategy: str) -> None:
        """Refuse settings that would make equal learners of those that `vary` tells apart."""
        learners = self.learners_of(strategy)
        origins = [self.origins.learners[name] for name in learners if name in self.origins.learners]
        for origin in origins if len(learners) > 1 else ():
            both = set(origin.varied) & set(self.overrides.get(strategy, Overrides()).learner)
            if both:
                raise ValueError(
                    f"`strategies.{strategy}.learner` must not set `{min(both)}`, which `vary` of "
                    f"learners.{origin.table} gives its values; choose one of them by the strategy's `learners`"
                )

    def budget_of(self, strategy: str) -> Budget:
        """Return a strategy's budget."""
        return self.overrides.get(strategy, Overrides()).budget or self.budget

    @property
    def judged_by_role(self) -> bool:
        """Whether a contrast is primary, so that all are judged by their roles, as means over seeds."""
        return any(one.primary for one in self.contrasts)

    @property
    def look_level(self) -> float:
        """The level that the study is judged at with the seeds it has: of its only look, or of this planned one."""
        return SIGNIFICANCE if self.looks is None else self.looks.levels[len(self.seeds)]

    def made_of(self, environment: str) -> tuple[str, dict[str, Any]]:
        """Return the Gymnasium id of one of the study's environments, and its constructor's arguments."""
        return made_of(environment, self.env_options.get(environment, {}))

    def environments_of(self, strategy: str, learner: str | None = None) -> tuple[str, ...]:
        """Return the environments a strategy runs on, with a learner or with any."""
        own = self.overrides.get(strategy, Overrides()).environments
        of_learner = self.environments if learner is None else self.learner_environments.get(learner, self.environments)
        return tuple(e for e in self.environments if (own is None or e in own) and e in of_learner)

    def learners_of(self, strategy: str) -> tuple[str, ...]:
        """Return the learners a strategy runs with."""
        own = self.overrides.get(strategy, Overrides()).learners
        return tuple(name for name in self.learners if own is None or name in own)

    def learner_of(self, strategy: str, learner: str) -> Part:
        """Return a learner as a strategy has it, every setting spelled out."""
        return self._overridden(strategy, learner).learner or self.learners[learner]

    def transforms_of(self, strategy: str, learner: str) -> tuple[Part, ...]:
        """Return a strategy's transforms, every option spelled out; an n-step return has the learner's discount."""
        return self._overridden(strategy, learner).transforms

    def _overridden(self, strategy: str, learner: str) -> ResolvedOverrides:
        """Return what a strategy does otherwise; resolved now, if no file was read or its record is of before that."""
        found = self.overridden.get(strategy, {}).get(learner)
        if found is not None:
            return found
        own = self.overrides.get(strategy, Overrides())
        return resolved_overrides(self.learners[learner], own.learner, own.transforms, strategy, self.name)

    def _all_overridden(self) -> dict[str, dict[str, ResolvedOverrides]]:
        """Resolve what strategies do otherwise, of those that change learners or have transforms."""
        fresh = self.model_copy(update={"learners": {k: without_code(p) for k, p in self.learners.items()}})
        return {
            name: {learner: fresh._overridden(name, learner) for learner in self.learners_of(name)}
            for name, own in self.overrides.items()
            if own.learner or own.transforms
        }

    @property
    def run_settings(self) -> dict[str, Any]:
        """The settings of its tables, by the names of `TrainingConfig`."""
        return {name: getattr(getattr(self, one.table), one.key) for name, one in IN_STUDIES.items()}

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
        except RecursionError as error:
            raise SpecError(f"{file}: is nested too deep.") from error
        except ValueError as error:  # not of TOML's grammar, not of UTF-8, a number of 5,000 digits
            raise SpecError(f"{file}: is not valid TOML: {error}.") from error
        if made := next((key for key in MADE if key in table), None):
            raise SpecError(unknown_key(str(file), made, [name for name in cls.model_fields if name not in MADE]))
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
        modules = {e: module_of(spec.made_of(e)[0]) for e in spec.environments}
        code = {e: code_of_file(module) for e, module in modules.items() if module}
        spec = spec.model_copy(
            update={"learners": learners, "strategies": strategies, "overridden": {}, "environment_code": code}
        )
        check_cells(spec, source)
        return spec.model_copy(update={"overridden": spec._all_overridden()})

    @property
    def runs(self) -> int:
        """Number of runs: environments × learners × strategies × seeds, without what a strategy leaves out."""
        cells = [
            e for s in self.strategies for learner in self.learners_of(s) for e in self.environments_of(s, learner)
        ]
        return len(cells) * len(self.seeds)


def _says(table: Any, key: str) -> bool:
    return isinstance(table, dict) and key in table
