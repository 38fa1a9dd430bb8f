"""Storing of steps whose next observation comes with the next step, as in data sets and streams."""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import takes
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError
from replaylab.replay.data.arrays import fitted
from replaylab.replay.data.fields import Field, names_error, need_field, next_paths
from replaylab.replay.protocols import Replay, StackedInputReplay, a_replay
from replaylab.trees import flatten, flatten_as, unflatten


class StepWriter:
    """Stores complete transitions from steps that lack their next observation.

    A step is held back until its environment's next one, whose ``obs`` becomes its ``next_obs``, or until its episode
    ends. So a step can be drawn once the next one has been added. Snapshots do not hold the step held back of each
    environment, so a new writer begins new episodes and leaves the previous ones without an end. With
    ``next_obs="derived"`` every observation is stored once.

    Args:
        buffer: The `Replay` that stores the transitions. Its fields ``next_obs`` and ``obs`` are declared alike, and
            ``terminated`` and ``truncated`` as ``Field((), bool)``.

    Raises:
        FieldError: The buffer declares other fields.
        ConfigError: The buffer has an autoreset mode, which applies only if steps include next observations.

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
        self._after = next_paths("StepWriter", self._fields)
        for name in ENDS:
            need_field("StepWriter", self._fields, name, Field((), np.bool_))
        if buffer.autoreset not in (None, "disabled"):
            raise ConfigError(
                f'StepWriter needs `end_episode` where an episode ends, but the buffer has autoreset="'
                f'{buffer.autoreset}"; make it without autoreset'
            )
        buffer.end_episode()
        self._buffer = buffer
        self._axes = (buffer.replicas, None, buffer.num_envs)
        self._lead = tuple(n for n in self._axes if n is not None)
        self._has_pending = np.zeros(self._lead, np.bool_)
        self._pending: dict[str, npt.NDArray[Any]] = {
            path: np.zeros((*self._lead, *field.shape), field.dtype)
            for path, field in self._fields.items()
            if path not in (*self._after.values(), *ENDS)
        }

    def add(self, /, *, where: npt.ArrayLike | None = None, **step: Any) -> Any:
        """Take one time step of every environment, and store the previous ones.

        Args:
            where: bool ``[R] [E]``; environments that take no step are False.
            **step: Every field but ``next_obs``, ``terminated`` and ``truncated``, as `ReplayBuffer.add` takes them.

        Returns:
            The ids of the steps that were stored, int64 ``[R] [E]``, an int when there is neither axis; −1 where none.

        Raises:
            FieldError, ShapeError, DtypeError: As for `ReplayBuffer.add`; nothing is stored.
        """
        values = self._checked("add", step, list(self._pending))
        mask = self._mask("where", True if where is None else where)
        ids = self._store({path: values[path] for path in self._after}, mask, False, False)
        for path, pending in self._pending.items():
            pending[mask] = values[path][mask]
        self._has_pending |= mask
        return ids

    def end_episode(
        self, obs: Any, *, terminated: Any = False, truncated: Any = False, where: npt.ArrayLike | None = None
    ) -> Any:
        """Store each environment's last step, if one is held back; its next step begins an episode.

        Args:
            obs: The observation that the last action led to, ``[R] [E] *shape``.
            terminated: Whether the task ended there, bool or bool ``[R] [E]``.
            truncated: Whether the episode was cut off; assumed where both are False.
            where: bool ``[R] [E]``: the environments whose episodes end; None: all.

        Returns:
            The ids of the steps that were stored, as of `add`.
        """
        values = self._checked("end_episode", {"obs": obs}, list(self._after))
        mask = self._mask("where", True if where is None else where)
        over, cut_off = self._mask("terminated", terminated), self._mask("truncated", truncated)
        ids = self._store(values, mask, over, cut_off | ~over)
        if (resets := mask & ~self._has_pending).any():
            self._buffer.end_episode(where=resets)
        self._has_pending &= ~mask
        return ids

    def _checked(self, call: str, step: dict[str, Any], paths: list[str]) -> dict[str, npt.NDArray[Any]]:
        template = {name: tree for name, tree in self._buffer.fields.items() if name in step}
        values = dict(flatten_as(template, step))
        if values.keys() != set(paths):
            raise names_error(call, values, paths)
        fields = self._fields
        return {path: fitted(path, values[path], fields[path].dtype, fields[path].shape, *self._axes) for path in paths}

    def _mask(self, name: str, value: Any) -> npt.NDArray[np.bool_]:
        full = np.broadcast_to(value, self._lead) if np.ndim(value) == 0 else value
        return fitted(name, full, np.dtype(np.bool_), (), *self._axes)

    def _store(self, after: dict[str, Any], where: Any, terminated: Any, truncated: Any) -> Any:
        """Store the steps held back of these environments, with their next observations."""
        ends = {
            name: np.broadcast_to(flag, self._lead) for name, flag in zip(ENDS, (terminated, truncated), strict=True)
        }
        columns = self._pending | {self._after[path]: value for path, value in after.items()} | ends
        steps = unflatten(self._trees, (columns[path] for path in self._fields))
        return self._buffer.add(**steps, where=where & self._has_pending)
