"""Batches copied to a device in one piece each: one copy costs about as much as that of a single column.

The columns that a network needs are written one after the other into pinned memory, which is copied at once, on its
own stream; the batch's tensors are views of the copy. PyTorch is imported when the first batch is sent.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.replay.data.frameworks import map_columns, pinned_memory, torch_dtype

if TYPE_CHECKING:
    import torch

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
    """Where a column is in the packed memory: its first byte; and the same as a tensor of its dtype."""

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
