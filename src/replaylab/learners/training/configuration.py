"""The configuration of a run: every setting is declared here, once.

A setting's line holds its default, its rule, and, where a study file gives it, its place there. From these lines come
the checks of `TrainingConfig`, the tables of study files, what identifies a study's results, and what a checkpoint's
run must equal. To add a setting: its line and its meaning here, and its use.

This module imports no training code: a report reads study files.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replaylab.arguments import (
    InvalidArgument,
    Rule,
    check,
    flag,
    function,
    instance,
    mapping,
    one_of,
    optional,
    shown,
    text,
    tuple_of,
    whole,
)
from replaylab.errors import ConfigError, SnapshotError
from replaylab.files.canonical_json import canonical, plain
from replaylab.learners.api.clock import Clock
from replaylab.learners.api.protocols import EnvSampler, Learner
from replaylab.learners.api.whole_algorithm import WholeAlgorithm
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import FrameStack, NStep, Replay, Sampler, Transform
from replaylab.replay import Sequence as Sequences

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode


REQUIRED: Any = object()
"""Stands for a default that a study file must give."""


@dataclass(frozen=True)
class Fitting:
    """A default period that fits the budget.

    Attributes:
        most: The period of a large budget.
        times: Least number of periods in a smaller budget.
        least: The shortest period.
        steps_only: Whether it is in environment steps, whatever the budget counts; with a budget in episodes it is
            `most` then.
    """

    most: int
    times: int
    least: int = 1
    steps_only: bool = False

    def within(self, total: int, unit: str) -> int:
        """Return the period for a budget, in steps or episodes."""
        if self.steps_only and unit == "episodes":
            return self.most
        return min(self.most, max(self.least, total // self.times))


COUNT = optional(whole())
MEASURES = Fitting(2_500, 4, least=2, steps_only=True)
MOST_PLAYED = 2**31 - 1
"""Largest number of episodes of an evaluation, and of held-out states."""


@dataclass(frozen=True)
class InStudy:
    """Place of a setting in study files, as a number or a boolean.

    Attributes:
        table: Table of the study file.
        key: In that table.
        kind: int or bool.
        default: Used where the file does not give it; a `Fitting` depends on the budget.
        least: Smallest value of a number.
        later: Whether results exist from before it was added. At its default it is then not part of a run's identity,
            so that they stay valid.
    """

    table: str
    key: str
    kind: type
    default: Any = REQUIRED
    least: int = 0
    later: bool = False


@dataclass(frozen=True)
class Setting:
    """Metadata of a field of `TrainingConfig`.

    Attributes:
        rule: The rule that a value must fulfill.
        study: Its place in study files; None: not a plain value.
        decides: Whether it decides what is learned, so that a checkpoint's run must have the same; and not only what is
            written down of it.
    """

    rule: Rule[Any]
    study: InStudy | None = None
    decides: bool = True


def _setting(rule: Rule[Any], default: Any = REQUIRED, study: InStudy | None = None, decides: bool = True) -> Any:
    keyword = {} if default is REQUIRED else {"default": default}
    return field(**keyword, metadata={"setting": Setting(rule, study, decides)})


def _learner(value: Any) -> Learner | WholeAlgorithm:
    """Settings of a learner."""
    if isinstance(value, type) or not isinstance(value, Learner | WholeAlgorithm):
        names = [name for name in vars(Learner) if not name.startswith("_") and not hasattr(value, name)]
        raise InvalidArgument("a learner such as DQN()" + (f", with {', '.join(names)}" if names else ""))
    return value


def _options(value: Any) -> dict[str, Any]:
    """Keyword arguments."""
    return dict(mapping({} if value is None else value))


def _mode(value: Any) -> Any:
    """Gymnasium's autoreset mode, or its value."""
    one_of("NextStep", "SameStep", "Disabled")(getattr(value, "value", value))
    return value


def _period(value: Any) -> int | None:
    """A period in steps; None or 0: never."""
    return None if value is None else whole(0)(value) or None


def _rounds(value: Any) -> int | None:
    """A period of two steps or more, as a round compares two moments at least; None or 0: never."""
    period = _period(value)
    if period == 1:
        raise InvalidArgument("2 or more steps, as a round of measures compares two moments at least, or None")
    return period


@dataclass(frozen=True)
class TrainingConfig:
    """Configuration of a run: everything that `train` needs except the seeds.

    The budget is in steps or in episodes, and so are progress, `eval_every`, `log_every` and the rows' ``step``.

    Attributes:
        env_id: A Gymnasium environment that the learner can handle.
        learner: Settings of the learner, or of an algorithm with its own training loop, such as `SB3`.
        sampler: The sampler; `EnvOracle` is the oracle with the environment's exact values.
        total_steps: Environment steps of each replica.
        total_episodes: Instead of `total_steps`: episodes of each replica.
        transforms: Transforms of drawn steps; `EnvHindsight` is hindsight with the environment's functions.
        env_options: Keyword arguments of the environment's constructor.
        autoreset_mode: Autoreset mode of the environments; None: as `make_vector_env` chooses.
        measure_every: Environment steps, whatever the budget counts, between two rounds of measures of the batches;
            None or 0: no measures. ``docs/laboratory/measures.md`` has their cost.
        make_replay: Function that makes another replay than a `ReplayBuffer`, called with `env`,
            `capacity`, `seeds` (one for each of its R replicas), `sampler`, `transforms` and `count_replays`. None: a
            `ReplayBuffer`.
        eval_every: Steps or episodes between two greedy evaluations, with one more at the end; None: no
            evaluation. Default: 5,000, or a tenth of a smaller budget.
        eval_episodes: Episodes of an evaluation.
        held_out: States whose values each evaluation reports, see `HeldOut`; 0: none.
        value_error: Whether each evaluation reports the error of the values, see `OptimumDistance`; needs a transition
            table.
        log_every: Steps or episodes between two rows of the newest update, its batch and the
            exploration. Default: 1,000, or a tenth of a smaller budget.
        visits: Whether to count how often each replica was in each state (Discrete observations).
        trace_every: Episodes of a replica from one traced episode to the next, see `EpisodeTraces`; None or 0: no
            traces.

    Raises:
        ConfigError: A setting is invalid, or two settings contradict each other.

    Example:
        >>> from replaylab.learners import DQN
        >>> from replaylab.replay import Uniform
        >>> TrainingConfig("CartPole-v1", DQN(), Uniform(), total_steps=50_000).eval_every
        5000
    """

    env_id: str = _setting(text)
    learner: Learner | WholeAlgorithm = _setting(_learner)
    sampler: Sampler | EnvSampler = _setting(instance((Sampler, EnvSampler), "a sampler such as Uniform()"))
    total_steps: int | None = _setting(COUNT, None)
    total_episodes: int | None = _setting(COUNT, None)
    _: KW_ONLY
    transforms: Sequence[Transform | EnvHindsight] = _setting(
        tuple_of(instance((Transform, EnvHindsight), "a transform"), "a list or tuple of transforms"), ()
    )
    env_options: Mapping[str, Any] | None = _setting(_options, None)
    autoreset_mode: str | AutoresetMode | None = _setting(optional(_mode), None)
    measure_every: int | None = _setting(_rounds, None, InStudy("measures", "every", int, MEASURES))
    make_replay: Callable[..., Replay] | None = _setting(optional(function("what the replay is to store")), None)

    eval_every: int | None = _setting(
        COUNT, Fitting(5_000, 10), InStudy("evaluation", "every", int, least=1), decides=False
    )
    eval_episodes: int = _setting(
        whole(most=MOST_PLAYED), 10, InStudy("evaluation", "episodes", int, 10, least=1), decides=False
    )
    held_out: int = _setting(whole(0, MOST_PLAYED), 0, InStudy("evaluation", "held_out", int, 0), decides=False)
    value_error: bool = _setting(flag, False, InStudy("evaluation", "value_error", bool, False), decides=False)
    log_every: int = _setting(
        whole(), Fitting(1_000, 10), InStudy("logging", "every", int, Fitting(500, 10), least=1), decides=False
    )
    visits: bool = _setting(flag, False, InStudy("logging", "visits", bool, False), decides=False)
    trace_every: int | None = _setting(
        _period, None, InStudy("logging", "trace_every", int, 0, later=True), decides=False
    )

    def __post_init__(self) -> None:
        check(self, total_steps=COUNT, total_episodes=COUNT)
        if (self.total_steps is None) == (self.total_episodes is None):
            raise ConfigError(
                f"give either `total_steps` or `total_episodes`, but got {self.total_steps} and {self.total_episodes}"
            )
        unit = "steps" if self.total_steps else "episodes"
        for name in SETTINGS:
            value = getattr(self, name)
            if isinstance(value, Fitting):
                object.__setattr__(self, name, value.within(self.total_steps or self.total_episodes or 1, unit))
        check(self, **{name: setting.rule for name, setting in SETTINGS.items()})
        if self.transforms and not isinstance(self.sampler, Sampler) and not self.sampler.takes_transforms:
            raise ConfigError("the oracle scores steps as they are stored; leave the transforms out")
        if isinstance(self.learner, WholeAlgorithm) and not isinstance(self.sampler, Sampler):
            raise ConfigError(
                f"`sampler` must be left to the algorithm with {type(self.learner).__name__}, whose networks only its "
                f"loop knows, but got {shown(self.sampler)}, which asks the library's own learners"
            )
        gamma = getattr(self.learner, "gamma", None)
        for transform in self.transforms:
            match transform:
                case Sequences():
                    raise ConfigError("the training loop's learners learn from single steps; leave Sequence out")
                case FrameStack(stacked_input=False) if not isinstance(self.learner, WholeAlgorithm):
                    raise ConfigError(
                        "`transforms` would have the learner learn from stacks of frames but act on single ones; let "
                        "the environment stack them (gymnasium.wrappers.FrameStackObservation) and give "
                        f"FrameStack({transform.length}, stacked_input=True), which stores each frame once"
                    )
                case NStep() if gamma not in (None, transform.gamma):
                    raise ConfigError(f"`gamma` of NStep must be the learner's, {gamma}, but got {transform.gamma}")

    @property
    def driven_learner(self) -> Learner:
        """The learner whose agents the library's own loop drives.

        Raises:
            ConfigError: It has its own loop.
        """
        if isinstance(self.learner, WholeAlgorithm):
            raise ConfigError(
                f"`learner` must be one whose agents the library trains, such as DQN(), but "
                f"{type(self.learner).__name__} has its own training loop"
            )
        return self.learner

    def refuse_settings_of_the_host(self, loop: str) -> None:
        """Raise if something is set that needs the steps on the host, in the process that trains.

        Args:
            loop: The other loop, as the message calls it: "with actors".

        Raises:
            ConfigError: It is.
        """
        for name in ("make_replay", "measure_every", "visits", "trace_every"):
            if value := getattr(self, name):
                raise ConfigError(f"{loop} `{name}` must be left out, but got {shown(value)}")

    def clock(self, replicas: int) -> Clock:
        """Return a new clock of the budget for R replicas."""
        if self.total_steps is not None:
            return Clock(self.total_steps, "steps", replicas)
        assert self.total_episodes is not None
        return Clock(self.total_episodes, "episodes", replicas)

    def learning_settings(self) -> dict[str, Any]:
        """Return, as JSON values, the settings that decide what is learned; a checkpoint continues only with these."""
        return {name: plain(getattr(self, name)) for name, setting in SETTINGS.items() if setting.decides}


SETTINGS: dict[str, Setting] = {setting.name: setting.metadata["setting"] for setting in fields(TrainingConfig)}
"""Every setting by its name, in their order."""

IN_STUDIES: dict[str, InStudy] = {
    name: setting.study for name, setting in SETTINGS.items() if setting.study is not None
}
"""The settings that study files give in their tables, by the names they have here."""


def check_same_run(folder: Path, saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise `SnapshotError` if a saved run is continued with other settings, as JSON values by name."""
    for name in {**saved, **current}:
        before, after = (canonical(settings.get(name)) for settings in (saved, current))
        if _without_modules(before) != _without_modules(after):
            raise SnapshotError(
                f"the run in {folder} is another one: it was trained with {name}={before}, but got {after}; continue "
                "it with the settings it began with"
            )


def _without_modules(text: str) -> str:
    """Return settings with this library's classes and functions by their last name: another version may move them."""
    return re.sub(r'"replaylab\.[\w.]*\.(\w+)"', r'"\1"', text)


class BudgetWarning(UserWarning):
    """A setting of the configuration has no effect within the run's budget."""


def warn_of_budget(configuration: TrainingConfig) -> None:
    """Warn of each setting whose metrics can never be recorded in the budget, and of a warm-up that outlasts it."""
    for message in _warnings(configuration):
        warnings.warn(message, BudgetWarning, stacklevel=4)


def _warnings(config: TrainingConfig) -> Iterator[str]:
    if config.eval_every is None:
        for name in ("held_out", "value_error"):
            if getattr(config, name):
                yield f"`{name}` is recorded at evaluations, but `eval_every` is None; set `eval_every`"
    if config.total_steps is None:
        episodes = config.total_episodes or 0
        if config.log_every > episodes:
            yield _never("log_every", config.log_every, f"{episodes:,} episodes", episodes)
        return
    period = getattr(config.learner, "train_period", 1)
    last = config.total_steps // period * period  # step of the last turn of learning
    starts = getattr(config.learner, "learning_starts", 0)
    budget = f"{config.total_steps:,} steps"
    if starts > last:
        replays = getattr(config.learner, "batch_size", 1) > 0
        yield (
            f"`learning_starts` = {starts:,} is not reached in the budget of {budget}, so "
            f"{'no batch is learned from and ' if replays else ''}no metric of updates is recorded; set it to at most "
            f"{last:,}"
        )
        return
    for name, value in (("log_every", config.log_every), ("measure_every", config.measure_every)):
        if value is not None and value > last:
            yield _never(name, value, budget, last)


def _never(name: str, value: int, budget: str, most: int) -> str:
    return (
        f"`{name}` = {value:,} is not reached in the budget of {budget}, so the metrics that depend on it are never "
        f"recorded; set it to at most {most:,}, or leave it out"
    )
