"""The study file: TOML, read, validated and completed.

A `Spec` holds everything that decides a study's numbers, with every default filled in, so the same file run
next year under other defaults is a different study, and reports it. Shape of a file::

    name = "quick"
    title = "Which replay strategy learns CartPole best?"
    environments = ["CartPole-v1"]
    seeds = 10                      # 0 to 9; or a list
    chunk_size = 10                 # seeds trained together in one worker
    baseline = "uniform"            # the strategy the others are compared with
    metrics = ["eval/value_error"]  # further metrics whose differences the report tests

    core_minutes = 2.0              # training time of all runs on one core, for the list of studies

    [budget]
    steps = 20_000                  # environment steps of every run; or instead: episodes = 300

    [evaluation]                    # the keys of this table, of `logging` and of `measures` are settings of a run,
    every = 1_000                   # declared in learners/training/configuration.py; in environment steps
    episodes = 10

    [measures]
    every = 2_500                   # environment steps; 0: none

    [watch]                         # of each cell's first seed, for the report; it changes no number
    video = 200                     # environment steps of a greedy episode, as a video; 0 (default): none

    [learners.dqn]
    type = "dqn"                    # the other keys are the learner's settings
    gamma = 0.99
    environments = ["CartPole-v1"]  # only these of the study's

    [strategies.uniform]
    type = "uniform"                # the other keys are the sampler's options, and these:

    [strategies.hindsight]
    type = "uniform"
    title = "hindsight replay"      # what reports call it; learners too
    transforms = [{ type = "hindsight", ratio = 4 }]
    learner = { double = false }    # other settings of the learners, for this strategy
    budget = { steps = 40_000 }     # another budget
    environments = ["replaylab/BitFlip-v0"]         # only these of the study's
    learners = ["dqn"]                              # only these of the study's

    [strategies.prioritized]                        # one strategy for each combination of values, named
    type = "prioritized"                            # prioritized.alpha-0.5.beta-0 and so on; learners too
    vary = { alpha = [0.5, 1.0], beta = [0.0, 1.0] }
    factors = { choice = "td" }                     # labels, for contrasts

    [strategies.placebo]            # learns from what the runs of another strategy drew, of another seed each
    type = "tape"
    of = "uniform"

    [env_options."replaylab/BitFlip-v0"]            # for an environment's constructor
    n = 10

    [env_options.long_chain]        # a custom name in `environments`: the same id may come with other options
    id = "replaylab/BitFlip-v0"
    n = 15

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
    sides = ["full correction", "no correction"]    # what reports call `more` and `less`

    [answers]                       # the first line of the report, by the verdict on the primary comparison; also as
    higher = "Correct the bias."    # `answers` of a contrast. The others are lower, equivalent and inconclusive.

    [reference."CartPole-v1"]       # a line to compare learning curves with
    value = 500.0
    label = "optimum"

A budget in episodes is the unit of ``evaluation.every`` and ``logging.every`` as well.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, field_validator, model_validator

from replaylab.arguments import checked, place
from replaylab.errors import SpecError
from replaylab.study.spec.cells import check_cells
from replaylab.study.spec.components import LEARNERS, STRATEGIES, resolve
from replaylab.study.spec.contrasts import resolve_contrasts
from replaylab.study.spec.custom_components import code_of_file
from replaylab.study.spec.errors import MADE, explain, unknown_key
from replaylab.study.spec.named_environments import module_of
from replaylab.study.spec.parameter_grids import chosen_learners, expanded
from replaylab.study.spec.run_settings import with_defaults
from replaylab.study.spec.study_tables import MOST_SEEDS, Budget, Overrides, StudyTables
from replaylab.study.spec.tapes import check_tapes


class Spec(StudyTables):
    """A validated study. See the module's docstring for the file it is read from."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: Any) -> Any:
        """Make one table of each combination of values in ``vary``, and take overrides out of the options."""
        if not isinstance(value, dict) or not all(isinstance(value.get(k), dict) for k in ("learners", "strategies")):
            return value
        plain = {k: dict(table) if isinstance(table, dict) else table for k, table in value["learners"].items()}
        learners = expanded(plain, "learners", LEARNERS)
        strategies = expanded(value["strategies"], "strategies", STRATEGIES)
        recorded = value.get("origins") or {}  # those of a study.json
        if not isinstance(recorded, dict) or not all(isinstance(of, dict) for of in recorded.values()):
            return value
        file_origins = {"learners": learners.origins, "strategies": strategies.origins}
        origins = recorded | {k: recorded.get(k, {}) | of for k, of in file_origins.items()}
        for name, table in strategies.tables.items():
            if isinstance(table, dict) and "learners" in table:
                names = list(learners.tables)
                chosen = chosen_learners(table["learners"], origins["learners"], names, f"strategies.{name}")
                strategies.tables[name] = table | {"learners": chosen}
        titles = value.get("titles") or {}  # likewise
        if isinstance(titles, dict) and all(isinstance(of, dict) for of in titles.values()):
            of_file = {"learners": learners.titles, "strategies": strategies.titles}
            value = value | {"titles": titles | {k: titles.get(k, {}) | of for k, of in of_file.items()}}
        limits = {
            k: table.pop("environments")
            for k, table in learners.tables.items()
            if isinstance(table, dict) and "environments" in table
        }
        if limits:
            value = value | {"learner_environments": limits}
        return cls._part_overrides(
            value | {"learners": learners.tables, "strategies": strategies.tables, "origins": origins}
        )

    @classmethod
    def _part_overrides(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Separate the overrides of each strategy from its sampler's options."""
        strategies = value["strategies"]
        if not all(isinstance(table, dict) for table in (*strategies.values(), value.get("overrides", {}))):
            return value
        names = Overrides.model_fields
        taken = {k: {n: table[n] for n in names if n in table} for k, table in strategies.items()}
        plain = {k: {n: v for n, v in table.items() if n not in names} for k, table in strategies.items()}
        overrides = {**value.get("overrides", {}), **{k: table for k, table in taken.items() if table}}
        return cls._fit_budget(value | {"strategies": plain, "overrides": overrides})

    @staticmethod
    def _fit_budget(value: dict[str, Any]) -> dict[str, Any]:
        """Fill in the defaults that depend on the budget, by the smallest one; a wrong budget is refused later."""
        budgets = [value.get("budget"), *(table.get("budget") for table in value["overrides"].values())]
        try:
            valid = [Budget.model_validate(table) for table in budgets if table is not None]
        except ValidationError:
            return value
        smallest = min(valid, key=lambda budget: budget.total, default=None)
        return value if smallest is None else with_defaults(value, smallest.total, smallest.unit)

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

    @field_validator("seeds", "environments", "metrics")
    @classmethod
    def _no_duplicates(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        twice = sorted(str(v) for v, count in Counter(value).items() if count > 1)
        if twice:
            raise ValueError(f"must list each entry once, but {', '.join(twice)} appears more than once")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_baseline()
        for strategy in self.strategies:
            self._check_budget(strategy, self.budget_of(strategy))
            self._check_learner(strategy)
        for name in (
            {e for overrides in self.overrides.values() for e in overrides.environments or ()}
            | {e for some in self.learner_environments.values() for e in some}
            | set(self.env_options)
            | set(self.scores)
            | set(self.equivalence)
            | set(self.reference)
        ):
            if name not in self.environments:
                raise ValueError(
                    f"`environments` must list every environment referenced elsewhere in the file, but lacks {name!r}"
                )
        referenced = [("strategies", set(self.overrides) - set(self.strategies))]
        for what, defined in (("strategies", self.strategies), ("learners", self.learners)):
            referenced.append((f"origins.{what}", set(getattr(self.origins, what)) - set(defined)))
        referenced.append(("learners", set(self.learner_environments) - set(self.learners)))
        referenced += [
            (f"strategies.{k}.learners", set(o.learners or ()) - set(self.learners)) for k, o in self.overrides.items()
        ]
        for where, names in referenced:
            if names:
                raise ValueError(f"`{where}` refers to {min(names)!r}, which the file does not define")
        check_tapes(self)
        resolve_contrasts(self)
        self._check_answers()
        return self

    def _check_answers(self) -> None:
        """Raise if there are answers, but not one comparison that they belong to."""
        compared = [cell for cell in self.cells if cell[2] != self.baseline]
        if self.answers is not None and not self.contrasts and len(compared) != 1:
            raise ValueError(
                f"`answers` must belong to one comparison, but {len(compared)} are made with the baseline; declare a "
                f"contrast with primary = true, or leave the answers out"
            )

    def _check_baseline(self) -> None:
        if self.baseline in self.strategies:
            return
        variants = [name for name, origin in self.origins.strategies.items() if origin.table == self.baseline]
        named = variants or list(self.strategies)
        why = ", a table that `vary` makes these of" if variants else ""
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
        """Raise if a strategy's settings make learners equal that `vary` distinguishes."""
        learners = self.learners_of(strategy)
        origins = [self.origins.learners[name] for name in learners if name in self.origins.learners]
        for origin in origins if len(learners) > 1 else ():
            both = set(origin.varied) & set(self.overrides.get(strategy, Overrides()).learner)
            if both:
                raise ValueError(
                    f"`strategies.{strategy}.learner` must not set `{min(both)}`, which `vary` of "
                    f"learners.{origin.table} gives its values; choose one of them by the strategy's `learners`"
                )

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read, validate and complete a study file.

        Raises:
            SpecError: the file is missing or no TOML, a key is unknown, or a value breaks a rule; the message
                names the file, the key's path, the rule and the value.
        """
        file = Path(checked("path", path, place("a study file")))
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"{file}: cannot be read: {error.strerror}.") from error
        except RecursionError as error:
            raise SpecError(f"{file}: is nested too deep.") from error
        except ValueError as error:  # not of TOML's grammar, not of UTF-8, a number of 5,000 digits
            raise SpecError(f"{file}: is not valid TOML: {error}.") from error
        if internal_key := next((key for key in MADE if key in table), None):
            raise SpecError(
                unknown_key(str(file), internal_key, [name for name in cls.model_fields if name not in MADE])
            )
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
        return spec.model_copy(update={"overridden": spec.all_overridden()})
