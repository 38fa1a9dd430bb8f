"""Whole episodes into a buffer, and out of it: the form of data sets."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from replaylab.arguments import Unfit, checked, flag, mapping, optional, shown
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.data.arrays import as_array, fitted, steps_of
from replaylab.replay.data.fields import Field, Tree, flatten, flatten_as, map_leaves, names_error
from replaylab.replay.introspection.rows import Rows
from replaylab.replay.introspection.stats import stored_ids
from replaylab.replay.storage.retention import Reservoir
from replaylab.replay.transforms.stacked_input import check_first_stacks

ENDS = ("terminated", "truncated")

BLOCK = 1024
"""Steps that `episodes` takes out at once."""


class Episodic(Rows):
    """The part of `ReplayBuffer` that takes and gives whole episodes."""

    @abstractmethod
    def extend(self, /, **steps: Any) -> Any: ...  # noqa: D102 - ReplayBuffer's

    @abstractmethod
    def end_episode(self, where: npt.ArrayLike | None = None) -> None: ...  # noqa: D102

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Mapping[str, Any]],
        capacity: int | None = None,
        *,
        fields: Mapping[str, Tree] | None = None,
        **options: Any,
    ) -> Self:
        """Return a buffer that holds these episodes.

        Args:
            episodes: Mappings of the arguments of `extend_episode`.
            capacity: C. None: as many as all the episodes' steps, which are then in memory twice meanwhile.
            fields: The fields of a step. None: those of the first episode, in its dtypes; but with transforms floating
                rewards become float32, as `NStep` and others need them.
            **options: The constructor's; ``next_obs`` is "derived" unless it is given, or a storage or a `Reservoir`,
                which need it "stored".

        Raises:
            ConfigError: There is no episode.
            FieldError, ShapeError, DtypeError: An episode does not fit the first one, or `fields`.

        Example:
            >>> import numpy as np
            >>> from replaylab import ReplayBuffer
            >>> episode = {"obs": np.arange(4.0), "action": np.zeros(3, int), "reward": np.ones(3), "terminated": True}
            >>> buffer = ReplayBuffer.from_episodes([episode, episode], seed=0)
            >>> len(buffer), buffer.get([2])["next_obs"].tolist()
            (6, [3.0])
        """
        fields = checked("fields", fields, optional(mapping))
        episodes = checked("episodes", episodes, _iterable)
        if capacity is None:
            episodes = list(episodes)
            capacity = max(sum(map(steps_in, episodes)), 1)
        coming = iter(episodes)
        first = next(coming, None)
        if first is None:
            raise ConfigError("`episodes` must hold at least one episode, whose fields those of the buffer are")
        steps_in(first)  # whether it is one
        apart = options.get("storage") is not None or isinstance(options.get("retention"), Reservoir)
        options = {"next_obs": "stored" if apart else "derived"} | options
        if not fields:
            fields = fields_of_episode(first)
            reward = fields.get("reward")
            if options.get("transforms") and isinstance(reward, Field) and np.dtype(reward.dtype).kind == "f":
                fields["reward"] = Field(reward.shape, np.float32)
        buffer = cls(capacity, fields, **options)  # type: ignore[call-arg] # ReplayBuffer's
        for episode in chain([first], coming):
            steps_in(episode)  # whether it is one
            buffer.extend_episode(**episode)
        return buffer

    def extend_episode(self, /, *, obs: Any, terminated: Any = False, truncated: Any = False, **steps: Any) -> Any:
        """Store a whole episode of T steps, given by its T + 1 observations.

        What was stored before, and what comes after, belongs to other episodes. Flags are stored as they are given, so
        that neither may be set: the episode was left there, and its last step is like one that was truncated.

        Args:
            obs: ``(T + 1, *shape)``, from the first one to the one that the last action led to.
            terminated: Whether the task ended there; or of each step, bool ``T``.
            truncated: Whether the episode was cut off there; likewise.
            **steps: Every other field but ``next_obs``, ``T *field.shape``.

        Returns:
            int64 ``T``, the ids.

        Raises:
            FieldError: A field is missing or unknown.
            ShapeError, DtypeError: A value does not fit; nothing is stored.
            ConfigError: The buffer has replicas or several environments, or environments that reset themselves.
        """
        if self.replicas is not None or self.num_envs not in (None, 1) or self.autoreset not in (None, "disabled"):
            raise ConfigError(
                f"an episode is one environment's, but the buffer has (replicas={self.replicas}, num_envs="
                f"{self.num_envs}, autoreset={self.autoreset!r}); put episodes into a buffer of their own, and draw "
                "from both through a MixedReplay"
            )
        seen = map_leaves(lambda leaf: np.atleast_1d(as_array("field `obs`", leaf)), obs)
        steps["obs"] = map_leaves(lambda leaf: leaf[:-1], seen)
        if "next_obs" in self.fields:
            steps["next_obs"] = map_leaves(lambda leaf: leaf[1:], seen)
        length = steps_in({"obs": obs})
        for name, given in zip(ENDS, (terminated, truncated), strict=True):
            whole = at_the_end(checked(name, given, flag), length) if _alone(given) else given
            steps |= {name: whole} if name in self.fields or given is not False else {}
        given, flat = self._layout.given, dict(flatten_as(self.fields, steps))
        if flat.keys() != given.keys():
            raise names_error("extend_episode", flat, given)
        # As they are stored: an episode that does not fit must not end the one before.
        values = [fitted(path, flat[path], one.dtype, one.shape, None, length, None) for path, one in given.items()]
        each = values if self.num_envs is None else [value[:, None] for value in values]
        if self._layout.stack is not None:
            starts = np.ones((1, 1), np.bool_)
            whole = dict(zip(given, each, strict=True))
            leading = (None, length, self.num_envs)
            check_first_stacks(self._layout.stack, whole, None, given, leading, (starts, ~starts), False)
        self.end_episode()
        ids = self.extend(**self._layout.unflatten(iter(each))).reshape(length)
        self.end_episode()
        return ids

    def episodes(self) -> Iterator[dict[str, Any]]:
        """Yield what is stored as episodes, in the form that `extend_episode` takes: environment by environment.

        An episode ends where it terminated or was truncated, and where the environment's next step does not begin with
        the observation that this one led to. The oldest one lacks the steps that were overwritten; the newest may not
        have ended. With `num_envs` E the steps of environment e are those of id e modulo E, as they are where no call
        of `add` left any out; in a storage they are those that were added as its, process by process. The buffer must
        not be added to meanwhile.

        Raises:
            FieldError: A field is missing: ``obs`` and ``next_obs``, declared alike, ``terminated`` and ``truncated``.
            ConfigError: The buffer has replicas, or does not know which step follows which.
        """
        flat, after, envs = self._layout.flat, self._next_paths(), self.num_envs or 1
        if self.replicas is not None or isinstance(self.retention, Reservoir):
            raise ConfigError(
                f"`episodes` needs one line of steps, but the buffer has (replicas={self.replicas}, retention="
                f"{self.retention}); use get(ids)"
            )
        if envs > 1 and self.autoreset == "next_step" and self.storage is None:
            raise ConfigError(
                "`episodes` needs to know whose each step is, which ids do not tell where environments reset "
                'themselves in the next step (autoreset="next_step"); use get(ids)'
            )
        (ids,) = stored_ids(self)
        whose = ids % envs if self.storage is None else self._core.streams(ids)
        for env in np.unique(whose[whose >= 0]):
            line = ids[whose == env]
            held: list[dict[str, Any]] = []
            for start in range(0, len(line), BLOCK):
                rows = self._core.gather(line[start : start + BLOCK + 1], False)
                count = len(line[start : start + BLOCK])
                own = {path: rows[path][:count] for path in flat}
                last = own["terminated"].astype(bool) | own["truncated"].astype(bool)
                for path, following in after.items():
                    goes_on = _same(own[following][: len(rows[path]) - 1], rows[path][1:])
                    last[: len(goes_on)] |= ~goes_on
                last[-1] |= start + count == len(line)
                begin = 0
                for end in (*(np.flatnonzero(last) + 1).tolist(), count):
                    held.append({path: value[begin:end] for path, value in own.items()})
                    if end > begin and last[end - 1]:
                        yield self._episode(held, after)
                        held = []
                    begin = end

    def _next_paths(self) -> dict[str, str]:
        """Return for each path of ``obs`` that of what comes next."""
        flat = self._layout.flat
        after = {path: f"next_{path}" for path in flat if path.split(".")[0] == "obs"}
        alike = all(flat.get(following) == flat[path] for path, following in after.items())
        if not after or not alike or not all(name in flat for name in ENDS):
            raise FieldError(
                "`episodes` needs the fields `obs` and `next_obs`, declared alike, `terminated` and `truncated`, but "
                f"the buffer has {', '.join(flat)}"
            )
        return after

    def _episode(self, parts: list[dict[str, Any]], after: Mapping[str, str]) -> dict[str, Any]:
        whole = {path: np.concatenate([part[path] for part in parts]) for path in parts[0]}
        for path, following in after.items():
            whole[path] = np.concatenate([whole[path], whole[following][-1:]])
        nested = self._layout.unflatten(iter(whole.values()))
        del nested["next_obs"]
        return nested


def steps_in(episode: Mapping[str, Any]) -> int:
    """Return T, the steps of an episode.

    Raises:
        FieldError: It has no observations.
    """
    leaves = flatten(episode["obs"], "obs") if isinstance(episode, Mapping) and "obs" in episode else iter(())
    _, leaf = next(leaves, ("", None))
    if leaf is None:
        raise FieldError(f"an episode must be a mapping of names to arrays, `obs` among them, but got {shown(episode)}")
    return max(steps_of("obs", leaf, 0) - 1, 0)


def fields_of_episode(episode: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the fields that hold an episode's steps as they are.

    Example:
        >>> fields_of_episode({"obs": np.zeros((3, 2), np.uint8), "reward": np.zeros(2)})["next_obs"]
        Field((2,), uint8)
    """
    found = {name: map_leaves(_field, value) for name, value in episode.items() if name not in ENDS}
    return found | ({"next_obs": found["obs"]} if "obs" in found else {}) | dict.fromkeys(ENDS, Field((), np.bool_))


def at_the_end(ended: bool, length: int) -> npt.NDArray[np.bool_]:
    """Return a flag of an episode's last step as one of each step, (T,)."""
    flags = np.zeros(length, np.bool_)
    flags[-1:] = ended
    return flags


def _alone(value: Any) -> bool:
    return not isinstance(value, np.ndarray | list | tuple) and not getattr(value, "ndim", 0)


def _iterable(value: Any) -> Iterable[Any]:
    """Several episodes; one alone, or a text, is none."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise Unfit("episodes, each a mapping of names to arrays")
    return value


def _field(value: Any) -> Field:
    array = as_array("a field", value)
    return Field(array.shape[1:], array.dtype)


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows are the same, bit for bit (N,)."""
    if not len(one):
        return np.zeros(0, np.bool_)
    first, second = (np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8) for rows in (one, other))
    return np.asarray((first == second).all(1))
