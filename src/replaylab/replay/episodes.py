"""Complete episodes into a buffer and out of it, in the form of data sets."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, flag, mapping, optional, shown
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError, FieldError, ReplayError, ShapeError
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.buffer_parts import BufferParts
from replaylab.replay.data.arrays import as_array, fitted, steps_of, widened
from replaylab.replay.data.fields import Field, Tree, field_at, names_error, next_paths
from replaylab.replay.introspection import removed_ids, stored_ids
from replaylab.replay.storage import Reservoir
from replaylab.replay.transforms.frame_stack import check_first_stacks
from replaylab.trees import flatten, flatten_as, map_leaves, same_rows, take, unflatten

BLOCK = 1024
"""Steps that `episodes` reads at once."""


def options_for_episodes(
    episodes: Iterable[Mapping[str, Any]],
    capacity: int | None,
    fields: Mapping[str, Tree] | None,
    options: dict[str, Any],
) -> tuple[dict[str, Any], Iterable[Mapping[str, Any]]]:
    """Return the options of a buffer for episodes, and the episodes; see `ReplayBuffer.from_episodes`."""
    fields = checked("fields", fields, optional(mapping))
    coming: Iterator[Mapping[str, Any]] = map(_sound, count(), checked("episodes", episodes, _iterable))
    if capacity is None:
        every = list(coming)
        capacity, coming = max(sum(map(steps_in, every)), 1), iter(every)
    first = next(coming, None)
    if first is None:
        raise ConfigError("`episodes` must hold at least one episode, from which the buffer takes its fields; pass one")
    stores_next_obs = options.get("storage") is not None or isinstance(options.get("retention"), Reservoir)
    options = {"next_obs": "stored" if stores_next_obs else "derived"} | options
    if not fields:
        fields = fields_of_episode(first)
        reward = fields.get("reward")
        if options.get("transforms") and isinstance(reward, Field) and np.dtype(reward.dtype).kind == "f":
            fields["reward"] = Field(reward.shape, np.float32)
    if not any(name in fields for name in ENDS):
        options["episodes"] = "manual"  # `extend_episode` ends each episode
    return dict(capacity=capacity, fields=fields, **options), chain([first], coming)


def steps_of_episode(
    parts: BufferParts, obs: Any, terminated: Any, truncated: Any, steps: dict[str, Any]
) -> dict[str, Any]:
    """Return an episode's steps as `extend` takes them; see `ReplayBuffer.extend_episode`."""
    config, layout = parts.config, parts.layout
    if config.replicas is not None or config.num_envs not in (None, 1) or config.autoreset not in (None, "disabled"):
        raise ConfigError(
            f"an episode is one environment's, but the buffer has (replicas={config.replicas}, num_envs="
            f"{config.num_envs}, autoreset={config.autoreset!r}); put episodes into their own buffer, and draw "
            "from both through a MixedReplay"
        )
    all_obs = map_leaves(lambda leaf: np.atleast_1d(as_array("field `obs`", leaf)), obs)
    steps["obs"] = take(all_obs, slice(-1))
    if "next_obs" in config.fields:
        steps["next_obs"] = take(all_obs, slice(1, None))
    length = steps_in({"obs": obs})
    for name, ended in zip(ENDS, (terminated, truncated), strict=True):
        flags = at_the_end(checked(name, ended, flag), length) if _is_scalar(ended) else ended
        steps |= {name: flags} if name in config.fields or ended is not False else {}
    input_fields, flat = layout.input_fields, dict(flatten_as(config.fields, steps))
    if flat.keys() != input_fields.keys():
        raise names_error("extend_episode", flat, input_fields)
    outside = ("obs", "next_obs", *ENDS)
    _check_length(length, {path: value for path, value in flat.items() if path.split(".")[0] not in outside})
    # Checked before anything changes: an episode that does not fit must not end the previous one.
    values = [
        fitted(path, flat[path], field.dtype, field.shape, None, length, None) for path, field in input_fields.items()
    ]
    columns = values if config.num_envs is None else [value[:, None] for value in values]
    if layout.stack is not None and layout.stack.stacked_input:
        starts = np.ones((1, 1), np.bool_)
        flat_steps = dict(zip(input_fields, columns, strict=True))
        leading = (None, length, config.num_envs)
        check_first_stacks(layout.stack, flat_steps, None, input_fields, leading, (starts, ~starts), False)
    return layout.unflatten(iter(columns))


def episodes(parts: BufferParts) -> Iterator[dict[str, Any]]:
    """Yield the stored episodes; see `ReplayBuffer.episodes`."""
    config, layout = parts.config, parts.layout
    flat, after = layout.flat, next_paths("`episodes`", layout.flat)
    if missing := [f"`{name}`" for name in ENDS if name not in flat]:
        raise FieldError(f"`episodes` needs the fields {' and '.join(missing)}, but the buffer has {', '.join(flat)}")
    if config.replicas is not None or isinstance(config.retention, Reservoir):
        raise ConfigError(
            f"`episodes` needs steps in the order of time, but the buffer has (replicas={config.replicas}, retention="
            f"{config.retention}); use get(ids)"
        )
    ids, removed = np.concatenate(stored_ids(parts)), np.concatenate(removed_ids(parts))
    ids = np.sort(np.concatenate((ids, removed)))
    env_of = parts.core.environments(ids)
    for env in np.unique(env_of[env_of >= 0]):
        is_stored = np.isin(ids[env_of == env], removed, invert=True)
        env_ids = ids[env_of == env][is_stored]
        before_removed = ~np.append(is_stored[1:], True)[is_stored]
        pieces: list[dict[str, Any]] = []
        for start in range(0, len(env_ids), BLOCK):
            rows = parts.core.gather(env_ids[start : start + BLOCK + 1], False)
            count = len(env_ids[start : start + BLOCK])
            columns = {path: rows[path][:count] for path in flat}
            last = columns["terminated"].astype(bool) | columns["truncated"].astype(bool)
            for path, following in after.items():
                continues = same_rows(columns[following][: len(rows[path]) - 1], rows[path][1:])
                last[: len(continues)] |= ~continues
            last |= before_removed[start : start + count]
            last[-1] |= start + count == len(env_ids)
            begin = 0
            for end in (*(np.flatnonzero(last) + 1).tolist(), count):
                pieces.append({path: value[begin:end] for path, value in columns.items()})
                if end > begin and last[end - 1]:
                    yield _episode(layout, pieces, after)
                    pieces = []
                begin = end


def _episode(layout: BufferLayout, pieces: list[dict[str, Any]], after: Mapping[str, str]) -> dict[str, Any]:
    joined = {path: np.concatenate([rows[path] for rows in pieces]) for path in pieces[0]}
    for path, following in after.items():
        joined[path] = np.concatenate([joined[path], joined[following][-1:]])
    nested = layout.unflatten(iter(joined.values()))
    del nested["next_obs"]
    return nested


def steps_in(episode: Mapping[str, Any]) -> int:
    """Return T, the steps of an episode.

    Raises:
        FieldError: The episode has no observations.
    """
    leaves = flatten(episode["obs"], "obs") if isinstance(episode, Mapping) and "obs" in episode else iter(())
    _, leaf = next(leaves, ("", None))
    if leaf is None:
        raise FieldError(f"an episode must be a mapping of names to arrays, `obs` among them, but got {shown(episode)}")
    return max(steps_of("obs", leaf, 0) - 1, 0)


def fields_of_episode(episode: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the fields that hold an episode's steps in their dtypes.

    Example:
        >>> fields_of_episode({"obs": np.zeros((3, 2), np.uint8), "reward": np.zeros(2)})["next_obs"]
        Field((2,), uint8)
    """
    by_name = {name: _fields(name, value) for name, value in episode.items() if name not in ENDS}
    return (
        by_name | ({"next_obs": by_name["obs"]} if "obs" in by_name else {}) | dict.fromkeys(ENDS, Field((), np.bool_))
    )


def at_the_end(ended: bool, length: int) -> npt.NDArray[np.bool_]:
    """Return a flag of an episode's last step as one of each step, (T,)."""
    flags = np.zeros(length, np.bool_)
    flags[-1:] = ended
    return flags


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, np.ndarray | list | tuple) and not getattr(value, "ndim", 0)


def _iterable(value: Any) -> Iterable[Any]:
    """Several episodes; a single mapping or a string is refused."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise InvalidArgument("episodes, each a mapping of names to arrays")
    return value


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Begin the message of an error of this library with the number of the episode that it concerns."""
    try:
        yield
    except ReplayError as error:
        raise type(error)(f"episode {number} (counted from 0): {error}") from None


def _sound(number: int, episode: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an episode after checking that it has observations."""
    with numbered(number):
        steps_in(episode)
    return episode


def _check_length(length: int, steps: Mapping[str, Any]) -> None:
    """Raise `ShapeError` if all fields of an episode agree on a number of steps, but its observations do not.

    Args:
        length: T, one less than the observations.
        steps: Path → values of every field except the observations and the flags.
    """
    lengths = {steps_of(path, values, 0) for path, values in steps.items()}
    if len(lengths) == 1 and length not in lengths:
        (others,) = lengths
        raise ShapeError(
            f"`obs` of an episode must hold {others + 1} observations, one more than the {others} steps of "
            f"{', '.join(f'`{path}`' for path in steps)}, but got {length + 1}; append the observation after the last "
            "action"
        )


def _fields(name: str, values: Any) -> Tree:
    arrays = ((path, widened(as_array(f"field `{path}`", leaf))) for path, leaf in flatten(values, name))
    return unflatten(values, iter([field_at(path, array.shape[1:], array.dtype) for path, array in arrays]))
