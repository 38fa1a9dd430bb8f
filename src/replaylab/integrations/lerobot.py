"""Episodes from the frames of a LeRobot data set; needs NumPy alone, and LeRobot only to read one from disk."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, mapping, one_of, optional, text
from replaylab.episode_ends import terminated_and_truncated, truncated_at_the_end
from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.integrations.d4rl import check_one_length
from replaylab.trees import nest

OBS = "observation"
"""How the names of observations begin."""

STEPS = {"action": "action", "reward": "next.reward"}
"""Fields of a step, and what they are called there; either may be missing."""


def episodes(
    frames: Any,
    *,
    done: Literal["terminated", "truncated"] = "terminated",
    pictures: Literal["uint8"] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a data set, in the form that `ReplayBuffer.extend_episode` takes.

    Observations are nested by the dots in their names: ``observation.images.top`` is ``obs["images"]["top"]``. Nothing
    crosses an episode; one ends, too, where ``next.truncated`` reports it.

    What the last action of an episode led to is in no frame. If the task ended there, no target needs it, and the last
    observation stands in for it. If the episode was cut off, that frame gives its observation alone, and the step
    before it is truncated.

    Args:
        frames: A ``LeRobotDataset``, or other frames one by one, in order: mappings with ``observation.*``,
            ``episode_index``, and if there are any ``frame_index``, ``action``, ``next.reward``, ``next.done``,
            ``next.truncated``. Or a table of them: name → array (N, ...).
        done: What ``next.done`` says where there is no ``next.truncated``: that the task ended, as in LeRobot's own
            buffer, or that the recording did.
        pictures: "uint8": camera pictures (``observation.image`` and ``observation.images.*`` of two or more axes)
            become again what cameras give, from whole 255ths in floats, as LeRobot hands them out: a quarter of the
            memory, and 255 times the numbers. None: every value stays as it is.
        extra: More fields of a step: the field's name → the frame's, as in ``{"helped": "complementary_info.helped"}``.

    Raises:
        FieldError: A frame has no ``observation.*``, no ``episode_index``, or other names than the first one.
        ShapeError: The frames of an episode do not follow each other.
        DtypeError: With `pictures`, one holds floats that are no whole 255ths.

    Example:
        >>> table = {"observation.state": np.arange(4.0), "episode_index": [0, 0, 0, 1], "next.done": [0, 0, 1, 0]}
        >>> [(episode["obs"]["state"].tolist(), episode["terminated"].tolist()) for episode in episodes(table)]
        [([0.0, 1.0, 2.0, 2.0], [False, False, True])]
    """
    done_is = checked("done", done, one_of("terminated", "truncated"))
    names = {name: checked("extra", key, text) for name, key in checked("extra", extra or {}, mapping).items()}
    tables = _of_table(frames) if isinstance(frames, Mapping) else _of_frames(checked("frames", frames, _frames))
    pixels = checked("pictures", pictures, optional(one_of("uint8"))) is not None
    numbers = set[int]()
    for table in tables:
        number = int(table["episode_index"].reshape(-1)[0])
        if number in numbers:
            raise ShapeError(
                f"the frames of episode {number} must follow each other, but frames of others are between them; "
                "sort them by `episode_index`"
            )
        numbers.add(number)
        for part in _parts(table, done_is):
            episode = _episode(part, STEPS | names, done_is, pixels)
            if episode is not None:
                yield episode


def _frames(value: Any) -> Iterable[Any]:
    """Frames one by one; a data set that has only places and a length is taken place by place."""
    if isinstance(value, str | bytes) or not (isinstance(value, Iterable) or hasattr(value, "__getitem__")):
        raise InvalidArgument("frames, each a mapping of names to values, or a table of them")
    return (value[i] for i in range(len(value))) if hasattr(value, "__getitem__") else value


def _of_frames(frames: Iterable[Any]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield each episode's frames as columns."""

    def number(frame: Any) -> int:
        if not isinstance(frame, Mapping) or "episode_index" not in frame:
            raise FieldError(f"a frame must be a mapping with `episode_index`, but got {_names(frame)}")
        return int(np.asarray(frame["episode_index"]).reshape(()))

    for _, group in groupby(frames, number):
        held = list(group)
        if any(frame.keys() != held[0].keys() for frame in held):
            raise FieldError(f"the frames of an episode must have the same names, but one has not {_names(held[0])}")
        yield {name: np.stack([np.asarray(frame[name]) for frame in held]) for name in _used(held[0])}


def _of_table(table: Mapping[str, Any]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield each episode's part of the columns."""
    if "episode_index" not in table:
        raise FieldError(f"the table must have the column `episode_index`, but has {_names(table)}")
    columns = {name: np.asarray(table[name]) for name in _used(table)}
    check_one_length("the columns of a table", columns)
    number = columns["episode_index"].reshape(-1)
    borders = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    for begin, end in pairwise(borders):
        if end > begin:
            yield {name: column[begin:end] for name, column in columns.items()}


def _used(frame: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns; a task's description is not a column."""
    return [name for name, value in frame.items() if not isinstance(value, str) and name != "task"]


def _parts(table: dict[str, npt.NDArray[Any]], done_is: str) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Split an episode's frames where it was cut off: after frames with ``next.truncated``.

    If that column is missing and ``next.done`` means truncation, after frames with ``next.done``.
    """
    if "frame_index" in table and (np.diff(table["frame_index"].reshape(-1)) != 1).any():
        raise ShapeError(
            f"the frames of episode {table['episode_index'].reshape(-1)[0]} must follow each other, but are numbered "
            f"{table['frame_index'].reshape(-1).tolist()[:20]}; sort them, and leave none out"
        )
    count = len(table["episode_index"])
    by_done = done_is == "truncated" and "next.truncated" not in table
    cuts = np.flatnonzero(_flags(table, "next.done" if by_done else "next.truncated", count)) + 1
    for begin, end in pairwise(dict.fromkeys([0, *cuts.tolist(), count])):
        yield {name: column[begin:end] for name, column in table.items()}


def _episode(table: Mapping[str, Any], names: Mapping[str, str], done_is: str, pixels: bool) -> dict[str, Any] | None:
    """Return an episode of T + 1 observations; None if it has no complete step."""
    count = len(table["episode_index"])
    ended, cut_off = (_flags(table, name, count) for name in ("next.done", "next.truncated"))
    if done_is == "truncated" and "next.truncated" not in table:
        cut_off = ended
    terminated, _ = terminated_and_truncated(ended, cut_off)
    steps = count if terminated[-1] else count - 1
    if not steps:
        return None
    columns = {name: table[key][:steps] for name, key in names.items() if key in table}
    if "reward" in columns:
        columns["reward"] = columns["reward"].reshape(steps)
    ends = {"terminated": terminated[:steps], "truncated": truncated_at_the_end(terminated[:steps])}
    return {"obs": _obs(table, terminated[-1], pixels), **columns, **ends}


def _flags(table: Mapping[str, Any], name: str, count: int) -> npt.NDArray[np.bool_]:
    return table[name].reshape(count) != 0 if name in table else np.zeros(count, np.bool_)


def _obs(table: Mapping[str, Any], last_again: Any, pixels: bool) -> Any:
    """Return the observations, nested as their names are."""
    columns: dict[str, Any] = {}
    for name, column in table.items():
        if name.split(".")[0] == OBS:
            values = _as_pixels(name, column) if pixels and _is_camera(name, column) else column
            columns[name] = np.concatenate([values, values[-1:]]) if last_again else values
    if not columns:
        raise FieldError(f"frames must have `observation` or `observation.*`, but have {_names(table)}")
    return nest(columns)[OBS]


def _is_camera(name: str, column: npt.NDArray[Any]) -> bool:
    return (name == "observation.image" or name.startswith("observation.images.")) and column.ndim > 2


def _as_pixels(name: str, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return floats that are multiples of 1/255 as uint8, and integers unchanged."""
    if column.dtype.kind != "f":
        return column
    pixels = np.rint(np.clip(np.nan_to_num(column), 0.0, 1.0) * 255.0).astype(np.uint8)
    if not np.array_equal(pixels.astype(column.dtype) / column.dtype.type(255.0), column):
        raise DtypeError(
            f"with `pictures` as uint8, `{name}` must hold whole 255ths, but holds others between {column.min()} and "
            f"{column.max()}; leave `pictures` out, so that it stays {column.dtype}"
        )
    return np.asarray(pixels)


def _names(frame: Any) -> str:
    return ", ".join(map(str, frame)) if isinstance(frame, Mapping) else f"a {type(frame).__name__}"
