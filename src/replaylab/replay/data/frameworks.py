"""Batches as the arrays of PyTorch and JAX, sharing memory with NumPy's wherever that can be.

Neither library is imported before it is asked for.

To a CUDA device a batch is copied in one piece, because one copy costs about as much as that of a single column: the
columns that a network needs are written one after the other into pinned memory, which is copied at once, on its own
stream; the batch's tensors are views of the copy.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.arguments import shown
from replaylab.errors import ConfigError, DtypeError
from replaylab.extras import needs
from replaylab.trees import map_leaves

if TYPE_CHECKING:
    import torch


BOOKKEEPING = ("id", "probability")
"""Columns a network never needs: they stay on the CPU, at their full 64 bits."""


def map_columns(
    columns: Mapping[str, Any], function: Callable[[Any], Any], bookkeeping: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return a batch's columns as `map_leaves` does, with another function for the bookkeeping columns."""
    return {name: map_leaves(bookkeeping if name in BOOKKEEPING else function, tree) for name, tree in columns.items()}


def to_torch(columns: Mapping[str, Any], device: Any, *, non_blocking: bool) -> dict[str, Any]:
    """Return columns as tensors; see `Batch.torch`."""
    torch = _torch("Batch.torch()")

    def share(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf
        # An array in pinned memory is a view of a tensor: that tensor, not a new one of the same address, lets
        # PyTorch keep the memory until a copy to the device has ended.
        base = leaf.base
        if isinstance(base, torch.Tensor) and base.shape == leaf.shape and base.data_ptr() == leaf.ctypes.data:
            return base
        return _from_numpy(leaf if leaf.flags.writeable else leaf.copy())

    if device is None:
        return map_columns(columns, share, share)
    target = torch.device(device)
    # Where the others are copies, the bookkeeping columns are, too: the next draw may fill their memory (`out`).
    keep = share if target.type == "cpu" else lambda leaf: share(leaf).clone()
    return map_columns(columns, lambda leaf: share(leaf).to(target, non_blocking=non_blocking), keep)


def to_jax(columns: Mapping[str, Any], device: Any, *, copy: bool) -> dict[str, Any]:
    """Return columns as JAX arrays; see `Batch.jax`."""
    jax = _jax(type(columns))
    share = device is None and jax.default_backend() == "cpu"

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf if device is None else jax.device_put(leaf, device)
        if copy:
            leaf = leaf.copy()  # not JAX's own copy, which may be made when this call has long returned
        # A read-only column has been passed to JAX before; NumPy does not export it again.
        array = jax.numpy.from_dlpack(leaf) if share and leaf.flags.writeable else jax.device_put(leaf, device)
        leaf.flags.writeable = False
        return array

    return map_columns(columns, convert, np.copy if copy else lambda leaf: leaf)


def is_of_jax(device: Any) -> bool:
    """Return whether this is a device or sharding of JAX, or "jax", which means its default one."""
    return device == "jax" if isinstance(device, str) else _library(device) in ("jax", "jaxlib")


def jax_place(batch: type, device: Any) -> Any:
    """Return what `jax.device_put` takes for a device of JAX, None for its default one.

    Raises:
        ConfigError: It is neither a device nor a sharding.
        MissingExtraError: JAX is not installed.
    """
    jax = _jax(batch)
    if not isinstance(device, str | jax.Device | jax.sharding.Sharding):
        raise ConfigError(_NO_PLACE.format(shown(device)))
    return None if isinstance(device, str) else device


def torch_place(device: Any) -> Any:
    """Return a device of PyTorch.

    Raises:
        ConfigError: No device has this name.
        MissingExtraError: PyTorch is not installed.
    """
    if not isinstance(device, str) and _library(device) != "torch":
        raise ConfigError(_NO_PLACE.format(shown(device)))
    torch = _torch("a `device` of PyTorch")
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(_NO_PLACE.format(shown(device))) from None


_NO_PLACE = (
    '`device` must be "jax", a jax.Device or sharding, or a device of PyTorch such as "cuda:0", but got {}; leave it '
    "out for NumPy arrays"
)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def to_pinned(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns as NumPy arrays in pinned memory; see `Batch.pin_memory`."""
    _torch("Batch.pin_memory()")

    def pin(leaf: Any) -> npt.NDArray[Any]:
        array = np.asarray(leaf)
        pinned: npt.NDArray[Any] = pinned_memory(array.shape, array.dtype).numpy()
        np.copyto(pinned, array)
        return pinned

    return map_columns(columns, pin, np.array)


def pinned_memory(shape: tuple[int, ...], dtype: npt.DTypeLike) -> "torch.Tensor":
    """Return pinned memory, which PyTorch uses again once it is free and a copy from it has ended.

    Raises:
        ConfigError: PyTorch has no accelerator to pin memory for.
    """
    import torch

    try:
        return torch.empty(shape, dtype=torch_dtype(np.dtype(dtype)), pin_memory=True)
    except RuntimeError as error:
        raise ConfigError(
            f"memory is pinned for copies to an accelerator, but PyTorch says: {error} Leave pinning out where there "
            "is none"
        ) from None


def _from_numpy(array: npt.NDArray[Any]) -> "torch.Tensor":
    """Return a tensor of the same memory, as torch.from_dlpack would, in a quarter of its time."""
    import torch

    try:
        return torch.from_numpy(array)
    except TypeError:
        raise DtypeError(
            f"PyTorch has no dtype for {array.dtype}; declare the field with one it has, such as float32"
        ) from None


@cache
def torch_dtype(dtype: np.dtype[Any]) -> "torch.dtype":
    """Return PyTorch's dtype for one of NumPy's.

    Raises:
        DtypeError: PyTorch has no such dtype.
    """
    return _from_numpy(np.empty(0, dtype)).dtype


def _torch(feature: str) -> Any:
    with needs(feature, "torch"):
        import torch
    return torch


@cache
def _jax(batch: type) -> Any:
    """Import JAX, and register batches as trees of columns, so that compiled functions accept them."""
    with needs("Batch.jax()", "jax"):
        import jax
    jax.tree_util.register_pytree_node(
        batch,
        lambda columns: (tuple(columns.values()), tuple(columns)),
        lambda names, columns: batch(dict(zip(names, columns, strict=True))),
    )
    return jax


ALIGNMENT = 16
"""Each column begins at a multiple of this many bytes, for the vector instructions of a GPU."""


class CudaCopies:
    """Copies to a CUDA device, on their own stream, which overlap what other streams compute.

    PyTorch's allocator of pinned memory reuses no memory before its copy has ended.
    """

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None

    def host(self, nbytes: int) -> "torch.Tensor":
        """Return pinned memory to copy from, uint8; it is reused only after its copy has ended."""
        return pinned_memory((nbytes,), np.uint8)

    def copy(self, host: "torch.Tensor") -> tuple["torch.Tensor", "torch.cuda.Event"]:
        """Begin a copy to the device; return the device's memory, and the event of the copy's end."""
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            device_memory = host.to(self._device, non_blocking=True)
            return device_memory, self._stream.record_event()

    def wait(self, device_memory: "torch.Tensor", copied: "torch.cuda.Event") -> None:
        """Make the caller's current stream wait for the copy, and keep the memory until that stream has used it."""
        import torch

        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)
        device_memory.record_stream(stream)


class PackedCopies:
    """Sends each batch by a single copy; its bookkeeping columns stay on the host.

    Args:
        copies: Copies memory to the device.
    """

    def __init__(self, copies: CudaCopies) -> None:
        self._copies = copies
        self._plan: tuple[Any, list[_Place], int] = ((), [], 0)  # of batches of these shapes and dtypes

    def send(self, columns: Mapping[str, Any]) -> tuple[dict[str, Any], "torch.Tensor", Any]:
        """Begin the copy of a batch; return its columns, and the memory and event for `receive`."""
        import torch

        leaves: list[npt.NDArray[Any]] = []
        map_columns(columns, leaves.append, lambda _: None)
        kinds = [(leaf.shape, leaf.dtype) for leaf in leaves]
        if self._plan[0] != kinds:
            self._plan = (kinds, *_places(leaves))
        _, places, nbytes = self._plan
        host = self._copies.host(nbytes)
        memory: Any = host.numpy()
        for leaf, place in zip(leaves, places, strict=True):
            np.ndarray(leaf.shape, leaf.dtype, memory, place.start)[...] = leaf
        device_memory, copied = self._copies.copy(host)
        typed = {
            dtype: device_memory.view(dtype) for dtype in {place.dtype for place in places}
        }  # the copy, as numbers of each dtype
        tensors = iter([typed[p.dtype].as_strided(p.shape, p.strides, p.offset) for p in places])
        return map_columns(columns, lambda _: next(tensors), torch.from_numpy), device_memory, copied

    def receive(self, sent: tuple[dict[str, Any], "torch.Tensor", Any]) -> dict[str, Any]:
        """Return the columns, ready for the caller's later work on the device."""
        columns, device_memory, copied = sent
        self._copies.wait(device_memory, copied)
        return columns


class _Place(NamedTuple):
    """A column's first byte in the packed memory, and the column as a tensor of its dtype."""

    start: int
    dtype: "torch.dtype"
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _places(leaves: list[npt.NDArray[Any]]) -> tuple[list[_Place], int]:
    """Return the place of each column, and the bytes of all."""
    places, end = [], 0
    for leaf in leaves:
        strides = tuple(int(np.prod(leaf.shape[axis + 1 :])) for axis in range(leaf.ndim))
        places.append(_Place(end, torch_dtype(leaf.dtype), leaf.shape, strides, end // leaf.itemsize))
        end += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
    return places, end
