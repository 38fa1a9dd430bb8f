"""Episodes from the frames of a LeRobot data set. Needs only NumPy; reading a data set from disk needs LeRobot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, checked, mapping, one_of, optional, shown, text
from replaylab.episode_ends import terminated_and_truncated, truncated_at_the_end
from replaylab.errors import DtypeError, FieldError, ShapeError
from replaylab.extras import needs
from replaylab.integrations.d4rl import check_one_length
from replaylab.trees import nest

OBS = "observation"
"""First part of the names of observations."""

STEPS = {"action": "action", "reward": "next.reward"}
"""Fields of a step, and their names in LeRobot; either may be missing."""

FLAGS = ("next.done", "next.truncated")
NUMBERS = ("episode_index", "frame_index")


def episodes(
    frames: Any,
    *,
    done: Literal["terminated", "truncated"] = "terminated",
    pictures: Literal["uint8"] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the episodes of a data set, in the form that `ReplayBuffer.extend_episode` takes.

    Observations are nested by the dots in their names: ``observation.images.top`` is ``obs["images"]["top"]``. An
    episode also ends where ``next.truncated`` is true.

    No frame holds the next observation of an episode's last step. If the episode terminated, no target needs it, and
    the last observation is repeated. If the episode was truncated, only the observation of its last frame is used, and
    the previous step is truncated.

    Args:
        frames: A ``LeRobotDataset``, or other frames one by one, in order: mappings with ``observation.*``,
            ``episode_index``, and optionally ``frame_index``, ``action``, ``next.reward``, ``next.done``,
            ``next.truncated``. Or a table of frames: a mapping of names to arrays (N, ...), or to arrays (N,) of
            equally shaped arrays; a DataFrame; a pyarrow table, as ``pyarrow.parquet.read_table`` returns; a DuckDB
            relation. Other columns, and text, are left out.
        done: Meaning of ``next.done`` if there is no ``next.truncated``: "terminated", the task ended, as in LeRobot's
            own buffer; or "truncated", the recording ended.
        pictures: "uint8": camera pictures (``observation.image`` and ``observation.images.*`` of two or more axes)
            are converted back to uint8, from the floats that LeRobot returns, which must be multiples of 1/255. They
            take a quarter of the memory, and their numbers are 255 times as large. None: every value is unchanged.
        extra: More fields of a step: the field's name → the name in a frame, as
            in ``{"helped": "complementary_info.helped"}``.

    Raises:
        FieldError: A frame has no ``observation.*``, no ``episode_index``, or other names than the first one.
        ShapeError: The frames of an episode do not follow each other.
        DtypeError: A column holds something other than numbers; or, with `pictures`, floats that are not multiples of
            1/255.

    Example:
        >>> table = {"observation.state": np.arange(4.0), "episode_index": [0, 0, 0, 1], "next.done": [0, 0, 1, 0]}
        >>> [(episode["obs"]["state"].tolist(), episode["terminated"].tolist()) for episode in episodes(table)]
        [([0.0, 1.0, 2.0, 2.0], [False, False, True])]
    """
    done_is = checked("done", done, one_of("terminated", "truncated"))
    names = {name: checked("extra", key, text) for name, key in checked("extra", extra or {}, mapping).items()}
    columns = _columns(frames)
    if columns is None:
        tables = _of_frames(checked("frames", frames, _frames), names.values())
    else:
        tables = _of_table(columns, names.values())
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


def _columns(table: Any) -> Mapping[str, Any] | None:
    """Return a table as columns by name; None if `table` is something else, such as frames one by one."""
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "to_numpy") and hasattr(table, "columns"):  # pandas, Polars
        return {name: table[name] for name in table.columns}
    if hasattr(table, "__arrow_c_stream__"):  # pyarrow, DuckDB
        with needs("a table in Arrow's format", "lab"):
            import pyarrow
        arrow = pyarrow.table(table)
        return dict(zip(arrow.column_names, arrow.columns, strict=True))
    return None


def _frames(value: Any) -> Iterable[Any]:
    """Return the frames one by one; a data set that has only indexing and a length is read by index."""
    if isinstance(value, str | bytes) or not (isinstance(value, Iterable) or hasattr(value, "__getitem__")):
        raise InvalidArgument("frames, each a mapping of names to values, or a table of them")
    return (value[i] for i in range(len(value))) if hasattr(value, "__getitem__") else value


def _of_frames(frames: Iterable[Any], names: Iterable[str]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield each episode's frames as columns."""

    def number(frame: Any) -> int:
        if not isinstance(frame, Mapping) or "episode_index" not in frame:
            raise FieldError(f"a frame must be a mapping with `episode_index`, but got {_names(frame)}")
        return int(np.asarray(frame["episode_index"]).reshape(()))

    for _, group in groupby(frames, number):
        held = list(group)
        if any(frame.keys() != held[0].keys() for frame in held):
            raise FieldError(f"the frames of an episode must have the same names, but one has not {_names(held[0])}")
        yield {name: _stacked(name, [frame[name] for frame in held]) for name in _used(held[0], names)}


def _of_table(table: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield each episode's part of the columns."""
    if "episode_index" not in table:
        raise FieldError(f"the table must have the column `episode_index`, but has {_names(table)}")
    arrays = {name: np.asanyarray(table[name]) for name in _used(table, names)}
    columns = {name: _numbers(name, array) for name, array in arrays.items() if not _is_text(array)}
    check_one_length("the columns of a table", columns)
    number = columns["episode_index"].reshape(-1)
    borders = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    for begin, end in pairwise(borders):
        if end > begin:
            yield {name: column[begin:end] for name, column in columns.items()}


def _used(table: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the names of the columns, or of a frame's values, that episodes are made of; text is left out."""
    used = {*STEPS.values(), *FLAGS, *NUMBERS, *names}
    return [
        name
        for name, values in table.items()
        if not isinstance(values, str) and (name in used or name.split(".")[0] == OBS)
    ]


def _is_text(values: npt.NDArray[Any]) -> bool:
    """Whether a column holds text."""
    return values.dtype.kind in "US" or (values.dtype == object and values.size > 0 and isinstance(values[0], str))


def _numbers(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of numbers, from numbers or from an array of equally shaped arrays of them.

    Raises:
        DtypeError: There are other values, or a value is missing.
        ShapeError: The arrays have different shapes.
    """
    array = np.asarray(values)
    if array.dtype != object and not np.ma.is_masked(values):
        return array
    if array.dtype != object or not array.ndim:
        missing = "missing values" if array.dtype != object else shown(array.item())
        raise DtypeError(
            f"column `{name}` must hold numbers, or arrays of them, but holds {missing}; fill it, or read encoded "
            "pictures and videos through a LeRobotDataset"
        )
    return _stacked(name, array)


def _stacked(name: str, values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of several values of one shape, stacked."""
    arrays = [_numbers(name, value) for value in values]
    if len(shapes := {array.shape for array in arrays}) > 1:
        raise ShapeError(
            f"the values of column `{name}` must have one shape, but have {sorted(shapes)[:5]}; leave this column out, "
            "or pad its values"
        )
    return np.stack(arrays) if arrays else np.zeros(0)


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
