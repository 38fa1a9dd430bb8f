"""What `sample` returns."""

from collections.abc import Iterator, Mapping
from typing import Any

from replaylab.errors import FieldError, ShapeError
from replaylab.replay.fields import flatten


class Batch(Mapping[str, Any]):
    """The drawn steps as columns, by attribute or by key.

    Every declared field is an array of shape ``[R] B *field.shape`` (nested fields: dicts and tuples of
    them), and every batch also has

    * ``weight`` ``[R] B`` float32: the importance weight, 1 for samplers that need no correction;
    * ``probability`` ``[R] B`` float64: the law of one row, as `ReplayBuffer.probabilities` gives it;
    * ``id`` ``[R] B`` int64: the step's number, for `ReplayBuffer.update_priorities`.

    The arrays belong to the caller: no later call overwrites them unless it is given this batch as ``out``.
    """

    __slots__ = ("__dict__",)

    def __init__(self, columns: dict[str, Any]) -> None:
        self.__dict__ = columns

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no column `{name}`; it has {', '.join(self.__dict__)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}: {_describe(value)}' for name, value in self.items())})"


def copy_batch(batch: Batch, out: Batch) -> None:
    """Copy every array of a batch into those of another, which must be alike.

    Raises:
        FieldError, ShapeError: They are not.
    """
    values, targets = dict(flatten(batch.__dict__)), dict(flatten(out.__dict__))
    for path, value in values.items():
        if path not in targets:
            raise FieldError(f"`out` has no field `{path}`; pass a batch that an equal call to sample returned")
        if targets[path].shape != value.shape or targets[path].dtype != value.dtype:
            raise ShapeError(
                f"`out` must hold `{path}` as {value.dtype} of shape {value.shape}, but holds {targets[path].dtype} of "
                f"shape {targets[path].shape}"
            )
    for path, value in values.items():
        targets[path][...] = value


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_describe(child)}" for name, child in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_describe, value)) + ")"
    return f"{value.dtype}{list(value.shape)}"
