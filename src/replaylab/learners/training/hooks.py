"""The list of a run's hooks, what every run with hooks has, hooks that call plain functions, and evaluations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.arguments import checked, function, instance, optional, returned, shown, takes, tuple_of
from replaylab.errors import ConfigError, SnapshotError
from replaylab.learners.api.hooks import Bools, EnvStep, Floats, Hook, HookSource, TrainingRun
from replaylab.learners.api.protocols import Agents, ValueAgents
from replaylab.learners.evaluation.batch_measures import BatchMeasures
from replaylab.learners.evaluation.episode_traces import EpisodeTraces
from replaylab.learners.evaluation.evaluators import GreedyEvaluation, HeldOut, OptimumDistance
from replaylab.learners.evaluation.visits import Visits
from replaylab.learners.metrics import Metric
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.metrics_recorder import MetricsRecorder

EVENTS = tuple(name for name in vars(Hook) if name.startswith(("on_", "before_", "after_")))
"""Events of training, in the order of a turn: the methods of `Hook` that are called then."""

PROGRESS_PERIOD = 100
"""Environment steps between two calls of `Callbacks.progress`."""

_FUNCTION = optional(function("what has happened"))
_HOOKS = tuple_of(instance(Hook, "a Hook"), "a list or tuple of hooks")
_METRICS = tuple_of(instance(Metric, "a Metric"), "a list or tuple of Metric(name, title, unit, meaning)")
_STEP = instance(EnvStep, "an EnvStep, the step itself for instance")


class HookList:
    """All hooks of a run in their order; a loop calls `emit` at each of its events.

    Args:
        configuration: The settings, which switch on hooks of the library.
        seeds: The seeds that training began with.
        user_hooks: The caller's hooks.
        loop: Name of the loop, for messages.
        lacks: Events that the loop does not have.

    Attributes:
        recorder: Collects the rows of metrics.
        evaluations: Evaluates when a loop calls it, before `after_turn`.

    Raises:
        ConfigError: A hook is given twice, or needs an event that the loop does not have.
    """

    def __init__(
        self,
        configuration: TrainingConfig,
        seeds: Sequence[int],
        user_hooks: Sequence[Hook] = (),
        *,
        loop: str = "",
        lacks: Sequence[str] = (),
    ) -> None:
        learner, every, traced = configuration.learner, configuration.measure_every, configuration.trace_every
        sources = [source for source in (learner, configuration.sampler) if isinstance(source, HookSource)]
        steering = [
            hook for source in sources for hook in checked("hooks", source.hooks(), _HOOKS, type(source).__name__)
        ]
        self._attached = [*steering, *user_hooks]
        for i, hook in enumerate(self._attached):
            name = type(hook).__name__
            if any(hook is previous for previous in self._attached[:i]):
                raise ConfigError(f"`hooks` must be different ones, but got the same {name} twice")
            if missing := [event for event in lacks if _defines(hook, event)]:
                raise ConfigError(
                    f"`hooks` {loop} must do without {', '.join(lacks)}, which its loop does not have, but got {name}, "
                    f"which needs {missing[0]}; leave it out"
                )
        metrics: list[Metric] = []
        for owner in (learner, *self._attached):
            metrics += checked("metrics", getattr(owner, "metrics", ()), _METRICS, type(owner).__name__)
        listeners = [hook.on_metrics for hook in self._attached if _defines(hook, "on_metrics")]
        self.recorder = MetricsRecorder(seeds, configuration.log_every, metrics, listeners)
        self.evaluations = Evaluations(configuration)
        self._all: tuple[Hook, ...] = (
            *steering,
            self.recorder,
            *([Visits()] if configuration.visits else []),
            *([] if every is None else [BatchMeasures(every)]),
            *([] if traced is None else [EpisodeTraces(traced, learner)]),
            self.evaluations,
            *user_hooks,
        )
        self._functions: dict[str, list[Callable[..., Any]]] = {
            event: [getattr(hook, event) for hook in self._all if _defines(hook, event)] for event in EVENTS
        }

    def emit(self, event: str, *arguments: Any) -> None:
        """Call the functions of an event, of the hooks that define it."""
        for call in self._functions[event]:
            call(*arguments)

    def before_store(self, run: TrainingRun, step: EnvStep) -> EnvStep:
        """Return the step to store, after every hook's `before_store`.

        Raises:
            ConfigError: A hook does not return an EnvStep.
        """
        for call in self._functions["before_store"]:
            step = returned(f"`{getattr(call, '__qualname__', 'before_store')}`", call(run, step), _STEP)
        return step

    def keep(self, run: TrainingRun, rows: Bools) -> None:
        """Remove the other replicas from the hooks' states; `rows` is bool (R,).

        Raises:
            ConfigError: A hook's state does not have arrays of R replicas.
        """
        for hook in self._all:
            if not _defines(hook, "keep"):
                _state_of(hook, len(rows))
            hook.keep(run, rows)

    def state(self) -> dict[str, Any]:
        """Return the states of all hooks, for a checkpoint.

        Raises:
            ConfigError: Two hooks use the same name, or a state cannot be stored.
        """
        state: dict[str, Any] = {}
        for hook in self._all:
            hook_state = _state_of(hook)
            if twice := hook_state.keys() & state.keys():
                raise ConfigError(
                    f"`state` of {type(hook).__name__} must have its own names, but `{min(twice)}` is another hook's"
                )
            state |= hook_state
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned.

        Raises:
            SnapshotError: The state of a hook is missing.
        """
        for hook in self._all:
            try:
                hook.restore(state)
            except KeyError as error:
                raise SnapshotError(
                    f"{type(hook).__name__} finds no state in the checkpoint ({error}); continue with the "
                    "settings and the hooks that the run began with"
                ) from error

    @property
    def with_state(self) -> list[str]:
        """Class names of hooks with a state, except those that settings switch on."""
        return sorted(type(hook).__name__ for hook in self._attached if _defines(hook, "state"))


class HookedRun:
    """Base class of the runs of all loops: the settings, the hooks and the clock.

    Args:
        configuration: The settings.
        seeds: One for each replica.
        hooks: All hooks of the run.
    """

    agents: Agents

    def __init__(self, configuration: TrainingConfig, seeds: Sequence[int], hooks: HookList) -> None:
        self.configuration, self.seeds, self.env_id = configuration, list(seeds), configuration.env_id
        self.hooks, self.recorder = hooks, hooks.recorder
        self.clock = configuration.clock(len(self.seeds))

    def agents_of(self, rows: Bools) -> Agents:  # noqa: ARG002
        """Return the current agents of some of the replicas, bool (R,); of a single replica these are all."""
        return self.agents


def _defines(hook: Hook, method: str) -> bool:
    return getattr(type(hook), method) is not getattr(Hook, method)


def _state_of(hook: Hook, replicas: int | None = None) -> dict[str, Any]:
    """Return a hook's state, checked for storage in a checkpoint.

    Args:
        hook: The hook.
        replicas: R, if every array must be (R, ...) or without axes; None: shapes are not checked.

    Raises:
        ConfigError: The state is something other than nested arrays by name.
    """
    state, name = hook.state(), f"`state` of {type(hook).__name__}"
    for path, value in _leaves(state, ()):
        if not all(isinstance(part, str) and part and "/" not in part for part in path):
            raise ConfigError(f"{name} must have names without `/`, but got {path[-1]!r}")
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            array = np.asarray(None)
        if not path or array.dtype == object:
            raise ConfigError(f"{name} must be arrays by name, as in {{'count': np.zeros(R)}}, but got {shown(value)}")
        if replicas is not None and array.ndim and len(array) != replicas:
            raise ConfigError(
                f"{name} must be (R, ...) with R={replicas} replicas, but `{'.'.join(path)}` has shape {array.shape}: "
                "`restore` must take what it is given, or `keep` say how the hook continues with fewer"
            )
    return state


def _leaves(state: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if not isinstance(state, Mapping):
        yield path, state
        return
    for name, part in state.items():
        yield from _leaves(part, (*path, name))


class Callbacks(Hook):
    """Calls plain functions.

    Args:
        on_metrics: Called like `Hook.on_metrics`, with the time and metrics by name, (R,) each.
        on_end: Called with seeds whose budget is used up and their agents.
        progress: Called every 100 steps, and at the end, with the time of the slowest replica.
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
        """Call the function of progress, periodically."""
        clock = run.clock
        if self._progress is not None and (clock.steps % PROGRESS_PERIOD == 0 or clock.over.all()):
            self._progress(int(clock.now.min()))

    def on_end(self, run: TrainingRun, over: Bools) -> None:
        """Call the function of ends."""
        if self._on_end is not None:
            ended = [seed for seed, ended_here in zip(run.seeds, over, strict=True) if ended_here]
            self._on_end(ended, run.agents_of(over))


EvaluationMetric = Callable[[Any, Sequence[int]], npt.NDArray[np.float64]]
"""A further metric of evaluations: a function of agents and their seeds that returns numbers (R,)."""


class Evaluations(Hook):
    """A hook that evaluates the replicas whose evaluation is due; one by one if they progress separately.

    Args:
        configuration: The settings, with the period and the metrics of evaluations.
    """

    def __init__(self, configuration: TrainingConfig) -> None:
        self._configuration = config = configuration
        # NEXT_STEP is kept, as an environment may have only that mode; DISABLED is for loops that reset themselves
        autoreset = None if config.autoreset_mode is None else AutoresetMode(config.autoreset_mode)
        self._mode = mode = AutoresetMode.NEXT_STEP if autoreset is AutoresetMode.NEXT_STEP else None
        options = config.env_options
        self._greedy = GreedyEvaluation(config.env_id, config.eval_episodes, env_options=options, autoreset_mode=mode)
        self._apart = config.total_episodes is not None
        self._further: dict[str, EvaluationMetric] = {}

    def on_begin(self, run: TrainingRun) -> None:
        """Make the environments, collect the held-out states, and compute the optimal values.

        Raises:
            ConfigError: The agents have no Q values, the environment has no exact ones, or it cannot be made.
        """
        config = self._configuration
        if config.eval_every:
            self._greedy.open(1 if self._apart else len(run.seeds))
        if (config.held_out or config.value_error) and not isinstance(run.agents, ValueAgents):
            wanted = "held_out" if config.held_out else "value_error"
            learner = type(config.learner).__name__
            raise ConfigError(f"`{wanted}` needs Q(s, a), which {learner} does not have; leave it out")
        if config.held_out and config.eval_every:
            self._further["eval/held_out_q"] = HeldOut(
                config.env_id, run.seeds, config.held_out, config.env_options, self._mode
            )
        if config.value_error:
            self._further["eval/value_error"] = OptimumDistance(
                config.env_id, config.driven_learner, config.env_options
            )

    def evaluate(self, run: TrainingRun) -> None:
        """Evaluate the replicas whose evaluation is due."""
        every = self._configuration.eval_every
        due = run.clock.due(every)
        if every is None or not due.any():
            return
        for r in due.nonzero()[0] if self._apart else [slice(None)]:
            evaluated = np.zeros_like(due)
            evaluated[r] = True
            seeds = [seed for seed, selected in zip(run.seeds, evaluated, strict=True) if selected]
            number = (int(run.clock.now[evaluated][0]) - 1) // every
            agents = run.agents_of(evaluated)
            reward, length = self._greedy(agents, seeds, number)
            reported = {"eval/mean_reward": reward, "eval/mean_ep_length": length}
            reported |= {name: metric(agents, seeds) for name, metric in self._further.items()}
            placed = {name: _placed(values, evaluated) for name, values in reported.items()}
            run.recorder.report(run.clock, placed, evaluated)

    def on_end(self, run: TrainingRun, over: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        """Close the environments of evaluations when the last replica has ended."""
        if over.all():
            self._greedy.close()


def _placed(values: npt.NDArray[np.float64], rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    placed = np.full(len(rows), np.nan)
    placed[rows] = values
    return placed
