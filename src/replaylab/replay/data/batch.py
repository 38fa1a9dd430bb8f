"""Batches, as `sample` returns them."""

from collections.abc import Callable, ItemsView, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replaylab.errors import ConfigError, FieldError, ShapeError
from replaylab.replay.data import frameworks as output
from replaylab.replay.data.frameworks import CudaCopies, PackedCopies
from replaylab.trees import flatten


class Batch(Mapping[str, Any]):
    """The drawn steps as columns, by attribute or by key.

    Every declared field is an array of shape ``[R] B *field.shape`` (nested fields: dicts and tuples of
    them), and every batch also has

    * ``weight`` ``[R] B`` float32: the importance weight, 1 for samplers that need no correction;
    * ``probability`` ``[R] B`` float64: the probability of a row, as `ReplayBuffer.probabilities` returns it; the
      docstring of a sampler without an exact sampling probability states what this column holds;
    * ``id`` ``[R] B`` int64: the step's number, for `ReplayBuffer.update_priorities`.

    The arrays belong to the caller: no later call overwrites them unless it is given this batch as ``out``.
    They are NumPy's; `torch` and `jax` return the same batch as those libraries' arrays.
    """

    __slots__ = ("__dict__",)

    def __init__(self, columns: dict[str, Any]) -> None:
        self.__dict__ = columns

    def torch(self, device: Any = None, *, non_blocking: bool = True) -> "Batch":
        """Return the batch with PyTorch tensors, of the same dtypes and nesting.

        On the CPU nothing is copied: the tensors share the arrays' memory. ``id`` and ``probability`` stay there for
        every device, since they are passed to the buffer and not to a network; with another device than the CPU
        they are copies, as everything else then is.

        Args:
            device: Where to copy the tensors, such as "cuda"; None: leave them on the CPU.
            non_blocking: Return before a copy has ended, where the batch is pinned (`pin_memory`).

        Raises:
            DtypeError: PyTorch has no such dtype (longdouble).
            MissingExtraError: PyTorch is not installed.
        """
        return Batch(output.to_torch(self, device, non_blocking=non_blocking))

    def jax(self, device: Any = None, *, copy: bool = False) -> "Batch":
        """Return the batch with JAX arrays, of the same nesting; compiled functions accept it unchanged.

        On the CPU columns of 1 KiB or more are not copied: the JAX arrays share their memory. Since a JAX array
        must never change, this batch's arrays become read-only, so that it cannot be given as ``out`` any more.
        JAX itself cuts 64-bit columns to 32 bits, which copies, unless ``jax_enable_x64`` is set; ``id`` and
        ``probability`` therefore stay NumPy arrays.

        Args:
            device: The `jax.Device` or sharding to put the arrays on; None: JAX's default.
            copy: Copy, and leave this batch writable.

        Raises:
            MissingExtraError: JAX is not installed.
        """
        return Batch(output.to_jax(self, device, copy=copy))

    def pin_memory(self) -> "Batch":
        """Return a copy of the batch in pinned memory, still as NumPy arrays.

        From there ``torch("cuda")`` copies to the device while Python continues. Given as ``out`` it is filled
        again and again; wait then for the last copy to end before the next `sample`
        (``torch.cuda.current_stream().synchronize()``).

        Raises:
            ConfigError: PyTorch has no accelerator to pin memory for.
            MissingExtraError: PyTorch is not installed.
        """
        return Batch(output.to_pinned(self))

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__:  # torch.compile before PyTorch 2.13 comes here for every column
            return self.__dict__[name]
        raise AttributeError(f"the batch has no column `{name}`; it has {', '.join(self.__dict__)}")

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def items(self) -> ItemsView[str, Any]:
        """Return names and columns, faster than `Mapping` does."""
        return self.__dict__.items()

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}: {_describe(value)}' for name, value in self.items())})"


@dataclass(frozen=True)
class Delivery:
    """Processing of each batch of `ReplayBuffer.batches`.

    Attributes:
        send: Called in the thread that draws, with the batch.
        receive: Called in the thread that takes the batch, with what `send` returned.
    """

    send: Callable[[Batch], Any]
    receive: Callable[[Any], Batch] = lambda batch: batch


def delivery(pin_memory: bool, device: Any) -> Delivery:
    """Return what is done to each batch of `ReplayBuffer.batches`.

    Raises:
        ConfigError: `device` is no place for arrays, or one of JAX and to be reached from pinned memory.
        MissingExtraError: The library of `device` is not installed.
    """
    if device is None:
        return Delivery(Batch.pin_memory if pin_memory else lambda batch: batch)
    if output.is_of_jax(device):
        if pin_memory:
            raise ConfigError("`pin_memory` is for PyTorch's copies; leave it out where `device` is JAX's")
        place = output.jax_place(Batch, device)
        return Delivery(lambda batch: batch.jax(place))
    place = output.torch_place(device)
    if place.type == "cuda":
        packed = PackedCopies(CudaCopies(place))
        return Delivery(packed.send, lambda sent: Batch(packed.receive(sent)))
    return Delivery(lambda batch: (batch.pin_memory() if pin_memory else batch).torch(place))


def checked_out(out: Any) -> Batch:
    """Return the batch that `sample` is to write into.

    Raises:
        FieldError: It is not a batch.
    """
    if not isinstance(out, Batch):
        raise FieldError(f"`out` must be a Batch that an equal call to sample returned, but got {type(out).__name__}")
    return out


def copy_batch(batch: Batch, out: Batch) -> None:
    """Copy every array of a batch into those of another, which must have the same columns.

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
    return f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
