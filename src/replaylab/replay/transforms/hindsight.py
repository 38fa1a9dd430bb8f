"""Hindsight experience replay: a drawn step, as if its goal were one that was reached."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import NOT_NEGATIVE, check, function, one_of, text
from replaylab.errors import ConfigError, FieldError, NonFiniteError, ShapeError
from replaylab.replay.transforms.n_step import NStep
from replaylab.replay.transforms.transform import OUTCOME, Fields, Transform, need_outcome

Columns = dict[str, Any]
Outcome = Callable[[Any, Any, Mapping[str, Any]], npt.ArrayLike]


@dataclass(frozen=True)
class Hindsight(Transform):
    """Goals relabelled at draw time (HER), for observations in the form of Gymnasium's GoalEnv.

    Observations are mappings that hold the goal pursued and the goal achieved. Of the drawn rows, k of k + 1 (each by
    its own chance) get another desired goal in ``obs`` and ``next_obs``: the one achieved (in ``next_obs``) at a goal
    step,

    * "future": picked uniformly from the drawn step on to the newest stored step of its episode;
    * "final": the newest stored step of its episode;
    * "episode": picked uniformly from the stored steps of its episode;
    * "random": picked uniformly from all stored steps.

    Their ``reward`` and ``terminated`` are what the given functions say of the new goal; a step that ended its episode
    by terminating but does not terminate under the new goal counts as truncated. A batch also holds ``relabelled``
    bool ``[R] B``. Episodes need not be finished, nor wholly stored.

    With `NStep` the rewards of all n steps are those of the new goal, and the return stops where it is reached. With
    `Sequence` all steps of a row pursue one goal. Source: Andrychowicz et al. 2017 (future, k = 4).

    Attributes:
        compute_reward: Takes (achieved_goal, desired_goal, info), returns the rewards (n,). Goals are
            ``(n, *goal shape)``; info maps the paths of the rows' other columns to arrays ``(n, ...)``, but not a
            `Sequence`'s states and, with `NStep`, not ``obs`` and stacks.
            `env.unwrapped.compute_reward` of a GoalEnv that works on arrays fits.
        compute_terminated: Takes the same, returns bool (n,).
        strategy: Which goals; see above.
        ratio: k ≥ 0, relabelled rows for each that is not.
        achieved: Key of the goal achieved, in ``obs`` and ``next_obs``.
        desired: Key of the goal pursued.
        strategies: The strategies there are.
    """

    compute_reward: Outcome
    compute_terminated: Outcome
    strategy: Literal["final", "future", "episode", "random"] = "future"
    ratio: float = 4.0
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"

    makes: ClassVar[tuple[str, ...]] = ("relabelled",)
    strategies: ClassVar[tuple[str, ...]] = ("final", "future", "episode", "random")

    def __post_init__(self) -> None:
        outcome = function("(achieved_goal, desired_goal, info)")
        check(self, compute_reward=outcome, compute_terminated=outcome, strategy=one_of(*self.strategies))
        check(self, ratio=NOT_NEGATIVE, achieved=text, desired=text)

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know."""
        need_outcome(self, fields, [name for name in OUTCOME if name != "truncated" or name in fields])
        paths = list(fields)
        goals = [f"{obs}.{key}" for obs in ("obs", "next_obs") for key in (self.desired, self.achieved)]
        for path in goals:
            if path not in fields or fields[path] != fields.get(goals[0]):
                raise FieldError(
                    f"Hindsight needs the fields {', '.join(f'`{goal}`' for goal in goals)}, all declared alike, but "
                    f"`{path}` is {fields.get(path, 'missing')}"
                )
        config.strategy, config.share = self.strategies.index(self.strategy), self.ratio / (self.ratio + 1.0)
        config.achieved = paths.index(goals[3])
        config.desired = [paths.index(goals[0]), paths.index(goals[2])]

    def recompute(self, columns: Columns, known: ListOf[str], n_step: NStep | None) -> None:
        """Set the outcome of the relabelled rows in a batch's flat columns, in place.

        With `n_step` the outcome's columns come with an axis of K steps, last of the leading ones, and leave it.
        `known` are the fields that info may hold.
        """
        reward = columns["reward"]
        picked = columns["relabelled"]
        if picked.ndim < reward.ndim:
            picked = np.broadcast_to(_along(picked, reward.ndim), reward.shape)
        if n_step is not None:
            picked = picked & (np.arange(n_step.steps) < columns["n_steps"][..., None])
        elif "mask" in columns:
            picked = picked & columns["mask"]
        rows = Rows(columns, known, np.flatnonzero(picked), reward.ndim)
        if len(rows.numbers):
            achieved, desired = (rows.of(f"next_obs.{key}") for key in (self.achieved, self.desired))
            terminated = columns["terminated"]
            before = terminated.copy()
            new_reward = self._checked("compute_reward", achieved, desired, rows)
            new_terminated = self._checked("compute_terminated", achieved, desired, rows)
            with np.errstate(over="ignore"):
                held = new_reward.astype(reward.dtype)
            if not np.isfinite(held).all():
                raise NonFiniteError(
                    f"`compute_reward` of Hindsight must return finite numbers that {reward.dtype} can hold, but "
                    f"returned {new_reward[~np.isfinite(held)][0]}"
                )
            reward.reshape(-1)[rows.numbers] = held
            terminated.reshape(-1)[rows.numbers] = new_terminated
            if "truncated" in columns:
                columns["truncated"] |= before & ~terminated
        if n_step is not None:
            _take_together(columns, [path for path in known if not of_outcome(path)], n_step)

    def _checked(self, name: str, achieved: Any, desired: Any, info: Mapping[str, Any]) -> npt.NDArray[Any]:
        values = np.asarray(getattr(self, name)(achieved, desired, info))
        if values.shape != (len(achieved),):
            raise ShapeError(
                f"`{name}` of Hindsight must return one value a row, of shape ({len(achieved)},), but returned "
                f"{values.shape}"
            )
        if name == "compute_terminated" and values.dtype != np.bool_:
            raise ConfigError(f"`compute_terminated` of Hindsight must return booleans, but returned {values.dtype}")
        if name == "compute_reward" and values.dtype.kind not in "biuf":
            raise ConfigError(f"`compute_reward` of Hindsight must return real numbers, but returned {values.dtype}")
        return values


class Rows(Mapping[str, Any]):
    """Some of a batch's rows, path → column, each picked out when it is first asked for."""

    def __init__(self, columns: Columns, known: ListOf[str], numbers: npt.NDArray[np.intp], leading: int) -> None:
        self.numbers = numbers
        self._columns, self._known, self._leading = columns, known, leading
        self._picked: Columns = {}

    def of(self, path: str) -> Any:
        """Return the rows of any column, known or not."""
        if path not in self._picked:
            column = self._columns[path]
            self._picked[path] = column.reshape(-1, *column.shape[self._leading :]).take(self.numbers, 0)
        return self._picked[path]

    def __getitem__(self, path: str) -> Any:
        if path not in self._known:
            raise KeyError(path)
        return self.of(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def of_outcome(path: str) -> bool:
    """Whether a field depends on a step's outcome."""
    return path in OUTCOME or path.split(".")[0] == "next_obs"


def _take_together(columns: Columns, own: ListOf[str], n_step: NStep) -> None:
    """Make n-step returns of columns that hold K steps each: up to where one terminates, or none is left.

    Of the fields `own`, which have nothing to do with the outcome, the first step's value is left.
    """
    rewards, terminated, count = columns["reward"], columns["terminated"], columns["n_steps"]
    axis = rewards.ndim - 1
    over = np.cumsum(terminated, axis) - terminated  # how often it terminated before
    alive = (np.arange(n_step.steps) < count[..., None]) & (over == 0)
    powers = np.cumprod(np.concatenate([[1.0], np.full(n_step.steps, n_step.gamma)]))
    count[...] = alive.sum(axis)
    last = np.maximum(count - 1, 0)[..., None]
    columns["reward"] = (alive * rewards.astype(np.float64) * powers[:-1]).sum(axis).astype(np.float32)
    for path, column in columns.items():
        if path in own:
            columns[path] = column.take(0, axis)
        elif path in ("terminated", "truncated") or path.split(".")[0] == "next_obs":
            columns[path] = np.take_along_axis(column, _along(last, column.ndim), axis).squeeze(axis)
    columns["discount"] = np.where(columns["terminated"] | (count == 0), 0.0, powers[count]).astype(np.float32)


def _along(array: npt.NDArray[Any], ndim: int) -> npt.NDArray[Any]:
    """Return the array with axes of length 1 behind its own."""
    return array.reshape(array.shape + (1,) * (ndim - array.ndim))
