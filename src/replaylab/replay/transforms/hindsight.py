"""Hindsight experience replay: a drawn step, as if its goal were one that was reached."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import NOT_NEGATIVE, ArrayOf, check, function, one_of, option, returned, text
from replaylab.errors import FieldError, NonFiniteError
from replaylab.replay.transforms.n_step import NStep
from replaylab.replay.transforms.transform import OUTCOME, Fields, Transform, need_outcome

Columns = dict[str, Any]
STRATEGIES = ("final", "future", "episode")
Outcome = Callable[[Any, Any, Mapping[str, Any]], npt.ArrayLike]


@dataclass(frozen=True)
class Hindsight(Transform):
    """Goals relabelled at draw time (HER), for observations in the form of Gymnasium's GoalEnv.

    Observations are mappings that hold the goal pursued and the goal achieved. Of the drawn rows, k of k + 1 (each by
    its own chance) get another desired goal in ``obs`` and ``next_obs``: the one achieved (in ``next_obs``) at a goal
    step,

    * "future": picked uniformly from the drawn step on to the newest stored step of its episode;
    * "final": the newest stored step of its episode;
    * "episode": picked uniformly from the stored steps of its episode.

    Other fields that belong to the goal are recognized by their names and replaced with it: a field whose name
    contains "desired" gets, from the goal step, the value of the field of that name with "achieved" in its place, if
    both are declared alike (in ``obs`` and ``next_obs``: that of ``next_obs``). So ``true_desired`` gets
    ``true_achieved``, and ``obs.desired_speed`` gets ``next_obs.achieved_speed``. All other fields keep their stored
    values.

    Their ``reward`` and ``terminated`` are the results of the given functions for the new goal; a step that ended its
    episode by terminating but does not terminate under the new goal counts as truncated. A batch also holds
    ``relabelled`` bool ``[R] B``. Episodes need be neither finished nor stored completely.

    With `NStep` the rewards of all n steps are those of the new goal, and the return stops where it is reached. With
    `Sequence` all steps of a row pursue one goal. Source: Andrychowicz et al. 2017 (future, k = 4).

    Attributes:
        compute_reward: Takes (achieved_goal, desired_goal, info), returns the rewards (n,). Goals are
            ``(n, *goal shape)``; info maps the paths of the rows' other columns to arrays ``(n, ...)``, but not a
            `Sequence`'s states and, with `NStep`, not ``obs`` and stacks.
            `env.unwrapped.compute_reward` of a GoalEnv that works on arrays fits.
        compute_terminated: Takes the same, returns bool (n,).
        strategy: How goals are chosen; see above.
        ratio: k ≥ 0, relabelled rows for each that is not.
        achieved: Key of the goal achieved, in ``obs`` and ``next_obs``.
        desired: Key of the goal pursued.
        strategies: The available strategies.
    """

    compute_reward: Outcome
    compute_terminated: Outcome
    strategy: Literal["final", "future", "episode"] = option(one_of(*STRATEGIES), "future")
    ratio: float = option(NOT_NEGATIVE, 4.0)
    achieved: str = option(text, "achieved_goal")
    desired: str = option(text, "desired_goal")

    makes: ClassVar[tuple[str, ...]] = ("relabelled",)
    strategies: ClassVar[tuple[str, ...]] = STRATEGIES

    def __post_init__(self) -> None:
        outcome = function("(achieved_goal, desired_goal, info)")
        check(self, compute_reward=outcome, compute_terminated=outcome)

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Set the options of the core."""
        need_outcome(self, fields, [name for name in OUTCOME if name != "truncated" or name in fields])
        goals = [f"{obs}.{key}" for obs in ("obs", "next_obs") for key in (self.desired, self.achieved)]
        for path in goals:
            if path not in fields or fields[path] != fields.get(goals[0]):
                raise FieldError(
                    f"Hindsight needs the fields {', '.join(f'`{goal}`' for goal in goals)}, all declared alike, but "
                    f"`{path}` is {fields.get(path, 'missing')}"
                )
        pairs = {goals[0]: goals[3], goals[2]: goals[3]}
        for path in (path for path in fields if "desired" in path and path not in pairs):
            achieved = path.replace("desired", "achieved")
            achieved = f"next_{achieved}" if achieved.startswith("obs.") else achieved
            if fields[path] == fields.get(achieved):
                pairs[path] = achieved
        config.strategy, config.share = self.strategies.index(self.strategy), self.ratio / (self.ratio + 1.0)
        paths = list(fields)
        config.desired = [paths.index(path) for path in pairs]
        config.achieved = [paths.index(path) for path in pairs.values()]

    def recompute(self, columns: Columns, info_paths: ListOf[str], n_step: NStep | None) -> None:
        """Set the outcome of the relabelled rows in a batch's flat columns, in place.

        With `n_step` the outcome's columns have an axis of K steps as the last leading axis, which is reduced.
        `info_paths` are the fields that info may hold.
        """
        reward = columns["reward"]
        picked = columns["relabelled"]
        if picked.ndim < reward.ndim:
            picked = np.broadcast_to(_along(picked, reward.ndim), reward.shape)
        if n_step is not None:
            picked = picked & (np.arange(n_step.steps) < columns["n_steps"][..., None])
        elif "mask" in columns:
            picked = picked & columns["mask"]
        rows = Rows(columns, info_paths, picked.reshape(-1).nonzero()[0], reward.ndim)
        if rows.numbers.size:
            achieved, desired = (rows.of(f"next_obs.{key}") for key in (self.achieved, self.desired))
            terminated = columns["terminated"]
            before = terminated.copy()
            real, true = _rules_of_outcome(len(achieved), reward.dtype)
            new_reward = returned("`compute_reward` of Hindsight", self.compute_reward(achieved, desired, rows), real)
            new_terminated = returned(
                "`compute_terminated` of Hindsight", self.compute_terminated(achieved, desired, rows), true
            )
            reward.reshape(-1)[rows.numbers] = new_reward.astype(reward.dtype, copy=False)
            terminated.reshape(-1)[rows.numbers] = new_terminated
            if "truncated" in columns:
                columns["truncated"] |= before > terminated
        if n_step is not None:
            _take_together(
                columns, [path for path in info_paths if path != "reward" and not n_step.takes_last(path)], n_step
            )


class Rows(Mapping[str, Any]):
    """Some rows of a batch's columns, path → column, gathered at first access."""

    def __init__(self, columns: Columns, info_paths: ListOf[str], numbers: npt.NDArray[np.intp], leading: int) -> None:
        self.numbers = numbers
        self._columns, self._paths, self._leading = columns, info_paths, leading
        self._picked: Columns = {}

    def of(self, path: str) -> Any:
        """Return the rows of any column, also of one that is not in the mapping."""
        if path not in self._picked:
            column = self._columns[path]
            self._picked[path] = column.reshape(-1, *column.shape[self._leading :]).take(self.numbers, 0)
        return self._picked[path]

    def __getitem__(self, path: str) -> Any:
        if path not in self._paths:
            raise KeyError(path)
        return self.of(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def of_outcome(path: str) -> bool:
    """Whether a field depends on a step's outcome."""
    return path in OUTCOME or path.split(".")[0] == "next_obs"


@lru_cache(maxsize=1024)
def _rules_of_outcome(rows: int, dtype: np.dtype[Any]) -> tuple[ArrayOf, ArrayOf]:
    """Return the rules for so many rewards, which must fit into a dtype, and terminations."""
    words = f"one value a row, shape {(rows,)}"
    finite = f"{words}, finite numbers that {dtype} can hold"
    real = ArrayOf((rows,), finite, holds=partial(_finite_as, dtype), error=NonFiniteError)
    return real, ArrayOf((rows,), f"{words}, booleans", "b")


def _finite_as(dtype: np.dtype[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype != dtype:
        with np.errstate(over="ignore"):
            values = values.astype(dtype)
    return np.asarray(np.isfinite(values))


def _take_together(columns: Columns, first_only: ListOf[str], n_step: NStep) -> None:
    """Reduce columns of K steps to n-step returns, which end at a termination or at the last step available.

    `first_only` are the columns of which the first step's value is returned.
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
        if path in first_only:
            columns[path] = column.take(0, axis)
        elif n_step.takes_last(path):
            columns[path] = np.take_along_axis(column, _along(last, column.ndim), axis).squeeze(axis)
    columns["discount"] = np.where(columns["terminated"] | (count == 0), 0.0, powers[count]).astype(np.float32)


def _along(array: npt.NDArray[Any], ndim: int) -> npt.NDArray[Any]:
    """Return the array with axes of length 1 appended, up to `ndim` axes."""
    return array.reshape(array.shape + (1,) * (ndim - array.ndim))
