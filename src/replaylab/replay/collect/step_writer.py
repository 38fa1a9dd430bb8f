"""Steps whose next observation comes with the next step: the form of data sets and of environments that stream."""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import takes
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.data.arrays import fitted
from replaylab.replay.data.fields import Field, flatten, flatten_as, names_error, unflatten
from replaylab.replay.protocols import Replay, StackedInputReplay, a_replay

ENDS = ("terminated", "truncated")


class StepWriter:
    """Gives a buffer whole transitions, from steps that do not say what they lead to.

    A step is kept back until its environment's next one, whose ``obs`` becomes its ``next_obs``, or until its episode
    ends. So a step can be drawn when the next one is there; what is kept back, one step of each environment, is in no
    snapshot. So a new writer begins new episodes: what is stored of those before stays as it is, without an end. With
    ``next_obs="derived"`` every observation is stored once.

    Args:
        buffer: Where the transitions go, a `Replay`. Its fields ``next_obs`` and ``obs`` are declared alike, and
            ``terminated`` and ``truncated`` as ``Field((), bool)``.

    Raises:
        FieldError: The fields are others.
        ConfigError: The buffer has an autoreset mode, which is about environments that give their next observations.

    Example:
        >>> from replaylab import Field, ReplayBuffer
        >>> flag = Field((), bool)
        >>> fields = {"obs": Field(), "reward": Field(), "next_obs": Field(), "terminated": flag, "truncated": flag}
        >>> buffer = ReplayBuffer(100, fields, next_obs="derived")
        >>> writer = StepWriter(buffer)
        >>> writer.add(obs=0.0, reward=0.5), writer.add(obs=1.0, reward=0.5)
        (-1, 0)
        >>> writer.end_episode(obs=2.0, terminated=True)
        1
        >>> buffer.get([0, 1])["next_obs"].tolist()
        [1.0, 2.0]
    """

    @takes(buffer=a_replay)
    def __init__(self, buffer: Replay) -> None:
        self._trees = buffer.given_fields if isinstance(buffer, StackedInputReplay) else buffer.fields
        self._fields: dict[str, Field] = dict(flatten(self._trees))
        self._after = {path: f"next_{path}" for path in self._fields if path.split(".")[0] == "obs"}
        alike = all(self._fields.get(after) == self._fields[path] for path, after in self._after.items())
        nexts = sum(path.split(".")[0] == "next_obs" for path in self._fields)
        flags = all(self._fields.get(name) == Field((), np.bool_) for name in ENDS)
        if not (self._after and alike and nexts == len(self._after) and flags):
            raise FieldError(
                "StepWriter needs the fields `obs` and `next_obs`, declared alike, and `terminated` and `truncated` "
                f"declared as Field((), bool), but got {self._fields}"
            )
        if buffer.autoreset not in (None, "disabled"):
            raise ConfigError(
                f'StepWriter needs `end_episode` where an episode ends, but the buffer has autoreset="'
                f'{buffer.autoreset}"; make it without autoreset'
            )
        buffer.end_episode()
        self._buffer = buffer
        self._axes = (buffer.replicas, None, buffer.num_envs)
        self._lead = tuple(n for n in self._axes if n is not None)
        self._kept_back = np.zeros(self._lead, np.bool_)
        self._steps: dict[str, npt.NDArray[Any]] = {
            path: np.zeros((*self._lead, *field.shape), field.dtype)
            for path, field in self._fields.items()
            if path not in (*self._after.values(), *ENDS)
        }

    def add(self, /, *, where: npt.ArrayLike | None = None, **step: Any) -> Any:
        """Take one time step of every environment, and store the ones before it.

        Args:
            where: bool ``[R] [E]``; environments that take no step are False.
            **step: Every field but ``next_obs``, ``terminated`` and ``truncated``, as `ReplayBuffer.add` takes them.

        Returns:
            The ids of the steps that were stored, int64 ``[R] [E]``, an int when there is neither axis; −1 where none.

        Raises:
            FieldError, ShapeError, DtypeError: As for `ReplayBuffer.add`; nothing is stored.
        """
        values = self._checked("add", step, list(self._steps))
        taken = self._mask("where", True if where is None else where)
        ids = self._store({path: values[path] for path in self._after}, taken, False, False)
        for path, kept in self._steps.items():
            kept[taken] = values[path][taken]
        self._kept_back |= taken
        return ids

    def end_episode(
        self, obs: Any, *, terminated: Any = False, truncated: Any = False, where: npt.ArrayLike | None = None
    ) -> Any:
        """Store each environment's last step, if one is kept back; what it is given next begins an episode.

        Args:
            obs: The observation that the last action led to, ``[R] [E] *shape``.
            terminated: Whether the task ended there, bool or bool ``[R] [E]``; where it did not, it was cut off.
            truncated: Whether it was cut off; this is assumed where both are False.
            where: bool ``[R] [E]``: whose episode it is.

        Returns:
            The ids of the steps that were stored, as of `add`.
        """
        values = self._checked("end_episode", {"obs": obs}, list(self._after))
        asked = self._mask("where", True if where is None else where)
        over, cut_off = self._mask("terminated", terminated), self._mask("truncated", truncated)
        ids = self._store(values, asked, over, cut_off | ~over)
        if (without := asked & ~self._kept_back).any():
            self._buffer.end_episode(where=without)
        self._kept_back &= ~asked
        return ids

    def _checked(self, call: str, given: dict[str, Any], paths: list[str]) -> dict[str, npt.NDArray[Any]]:
        template = {name: tree for name, tree in self._buffer.fields.items() if name in given}
        values = dict(flatten_as(template, given))
        if values.keys() != set(paths):
            raise names_error(call, values, paths)
        fields = self._fields
        return {path: fitted(path, values[path], fields[path].dtype, fields[path].shape, *self._axes) for path in paths}

    def _mask(self, name: str, value: Any) -> npt.NDArray[np.bool_]:
        whole = np.broadcast_to(value, self._lead) if np.ndim(value) == 0 else value
        return fitted(name, whole, np.dtype(np.bool_), (), *self._axes)

    def _store(self, after: dict[str, Any], where: Any, terminated: Any, truncated: Any) -> Any:
        """Store what is kept back in these environments, with the observations that come after."""
        ends = {
            name: np.broadcast_to(flag, self._lead) for name, flag in zip(ENDS, (terminated, truncated), strict=True)
        }
        whole = self._steps | {self._after[path]: value for path, value in after.items()} | ends
        leaves = (whole[path] for path in self._fields)
        steps = {name: unflatten(tree, leaves) for name, tree in self._trees.items()}
        return self._buffer.add(**steps, where=where & self._kept_back)
