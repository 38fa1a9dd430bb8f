"""What hooks must be, and what they must return: a user's own may be and return anything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from replaylab.arguments import checked, instance, shown, tuple_of
from replaylab.errors import ConfigError, SnapshotError
from replaylab.learners.api.hooks import EnvStep, Hook, HookSource, TrainingRun
from replaylab.learners.metrics.registry import Metric

_HOOKS = tuple_of(instance(Hook, "a Hook"), "a list or tuple of hooks")
_METRICS = tuple_of(instance(Metric, "a Metric"), "a list or tuple of Metric(name, title, unit, meaning)")


def storing(before_store: Callable[..., Any]) -> Callable[[TrainingRun, EnvStep], EnvStep]:
    """Return a hook's `before_store` that refuses to go on without a step."""

    def stored(run: TrainingRun, step: EnvStep) -> EnvStep:
        found = before_store(run, step)
        if not isinstance(found, EnvStep):
            name = getattr(before_store, "__qualname__", "before_store")
            raise ConfigError(f"`{name}` must return an EnvStep, the step itself for instance, but got {shown(found)}")
        return found

    return stored


def hooks_of(source: object) -> tuple[Hook, ...]:
    """Return the hooks of a learner or a sampler."""
    if not isinstance(source, HookSource):
        return ()
    return checked("hooks", source.hooks(), _HOOKS, type(source).__name__)


def metrics_of(owner: object) -> tuple[Metric, ...]:
    """Return the metrics of a learner's or a hook's own."""
    return checked("metrics", getattr(owner, "metrics", ()), _METRICS, type(owner).__name__)


def check_different(hooks: Sequence[Hook]) -> None:
    """Raise `ConfigError` if a hook is there twice, which would hear, and count, everything twice."""
    for i, hook in enumerate(hooks):
        if any(hook is other for other in hooks[:i]):
            raise ConfigError(f"`hooks` must be different ones, but got the same {type(hook).__name__} twice")


def check_state(hook: Hook, replicas: int | None = None) -> dict[str, Any]:
    """Return a hook's state, if checkpoints can hold it.

    Args:
        hook: Whose.
        replicas: R, if every array must be (R, ...) or of no axes; None: that is not looked at.

    Raises:
        ConfigError: It is something else than nested arrays by name.
    """
    state = hook.state()
    for path, value in _leaves(state, ()):
        name = f"`state` of {type(hook).__name__}"
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
                "`restore` must take what it is given, or `keep` say how the hook goes on with fewer"
            )
    return state


def states_of(hooks: Sequence[Hook]) -> dict[str, Any]:
    """Return what all hooks need in a checkpoint.

    Raises:
        ConfigError: Two use the same name, or one has what no checkpoint holds.
    """
    state: dict[str, Any] = {}
    for hook in hooks:
        own = check_state(hook)
        if twice := own.keys() & state.keys():
            raise ConfigError(
                f"`state` of {type(hook).__name__} must have names of its own, but `{min(twice)}` is another hook's"
            )
        state |= own
    return state


def restore_all(hooks: Sequence[Hook], state: Mapping[str, Any]) -> None:
    """Continue from what `states_of` returned.

    Raises:
        SnapshotError: A hook finds nothing of its own in it.
    """
    for hook in hooks:
        if type(hook).restore is Hook.restore:
            continue
        try:
            hook.restore(state)
        except KeyError as error:
            raise SnapshotError(
                f"{type(hook).__name__} finds nothing of its own in the checkpoint ({error}); continue with the "
                "settings and the hooks that the run began with"
            ) from error


def _leaves(state: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if not isinstance(state, Mapping):
        yield path, state
        return
    for name, part in state.items():
        yield from _leaves(part, (*path, name))
