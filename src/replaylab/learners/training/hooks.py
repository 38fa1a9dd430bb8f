"""The hooks of one run, and those that call plain functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from replaylab.arguments import function, optional, takes
from replaylab.learners.api.hooks import Bools, Floats, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents
from replaylab.learners.training.batch_measures import BatchMeasures
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.evaluations import Evaluations
from replaylab.learners.training.hook_rules import (
    check_different,
    check_state,
    hooks_of,
    metrics_of,
    restore_all,
    states_of,
    storing,
)
from replaylab.learners.training.metrics_recorder import MetricsRecorder
from replaylab.learners.training.visits import Visits

PROGRESS_PERIOD = 100
"""Environment steps between two calls of `Callbacks.progress`."""

_FUNCTION = optional(function("what has happened"))


class Hooks:
    """All hooks of a run, in their order; of each event the functions of those that define it.

    Args:
        configuration: Says which of the library's hooks there are.
        seeds: Those that training began with.
        own: The caller's hooks.

    Attributes:
        recorder: The one that collects the rows.
    """

    def __init__(self, configuration: TrainingConfig, seeds: Sequence[int], own: Sequence[Hook] = ()) -> None:
        learner, every = configuration.learner, configuration.measure_every
        steering = [hook for one in (learner, configuration.sampler) for hook in hooks_of(one)]
        self._stateful = [*steering, *own]
        check_different(self._stateful)
        metrics = [one for owner in (learner, *steering, *own) for one in metrics_of(owner)]
        listeners = _functions("on_metrics", (*steering, *own))
        self.recorder = MetricsRecorder(seeds, configuration.log_every, metrics, listeners)
        self._all: tuple[Hook, ...] = (
            *steering,
            self.recorder,
            *([Visits()] if configuration.visits else []),
            *([] if every is None else [BatchMeasures(every, len(seeds))]),
            Evaluations(configuration),
            *own,
        )
        self.on_begin = _functions("on_begin", self._all)
        self.before_turn = _functions("before_turn", self._all)
        self.before_store = [storing(function) for function in _functions("before_store", self._all)]
        self.on_step = _functions("on_step", self._all)
        self.on_draw = _functions("on_draw", self._all)
        self.on_update = _functions("on_update", self._all)
        self.after_learning = _functions("after_learning", self._all)
        self.after_turn = _functions("after_turn", self._all)
        self.on_end = _functions("on_end", self._all)

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Continue with some of the replicas alone, bool (R,).

        Raises:
            ConfigError: A hook's state is not one of R replicas.
        """
        for hook in self._all:
            if type(hook).keep is Hook.keep:
                check_state(hook, len(rows))
            hook.keep(run, rows)

    def state(self) -> dict[str, Any]:
        """Return what all hooks need in a checkpoint.

        Raises:
            ConfigError: Two use the same name, or one has what no checkpoint holds.
        """
        return states_of(self._all)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned.

        Raises:
            SnapshotError: A hook finds nothing of its own in it.
        """
        restore_all(self._all, state)

    @property
    def with_state(self) -> list[str]:
        """Class names of hooks whose state checkpoints hold, but for those that settings switch on."""
        return sorted(type(hook).__name__ for hook in self._stateful if type(hook).state is not Hook.state)


def _functions(event: str, hooks: Iterable[Hook]) -> list[Callable[..., Any]]:
    """Return an event's functions of the hooks that define one; the others cost nothing."""
    return [getattr(hook, event) for hook in hooks if getattr(type(hook), event) is not getattr(Hook, event)]


class Callbacks(Hook):
    """Calls plain functions.

    Args:
        on_metrics: As `Hook.on_metrics`: now, and metrics by name, (R,) each.
        on_end: Called with seeds whose budget is used up and their agents.
        progress: Called every 100 steps, and at the end, with how far the slowest replica is.
    """

    @takes(on_metrics=_FUNCTION, on_end=_FUNCTION, progress=_FUNCTION)
    def __init__(
        self,
        *,
        on_metrics: Callable[[int, Mapping[str, Floats]], None] | None = None,
        on_end: Callable[[list[int], Agents], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._on_metrics, self._on_end, self._progress = on_metrics, on_end, progress

    def on_metrics(self, now: int, values: Mapping[str, Floats]) -> None:
        """Call the function of metrics."""
        if self._on_metrics is not None:
            self._on_metrics(now, values)

    def after_turn(self, run: TrainingRun) -> None:
        """Call the function of progress, now and then."""
        clock = run.clock
        if self._progress is not None and (clock.steps % PROGRESS_PERIOD == 0 or clock.over.all()):
            self._progress(int(clock.now.min()))

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Call the function of ends."""
        if self._on_end is not None:
            ended = [seed for seed, here in zip(run.seeds, over, strict=True) if here]
            self._on_end(ended, run.agents_of(over))
