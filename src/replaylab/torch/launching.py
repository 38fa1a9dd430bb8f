"""Launches of Triton's kernels: compiled ones are kept, and launched without Triton's dispatch."""

from typing import Any

import torch
from torch import Tensor

MOST_KEPT = 64
"""Largest number of compiled forms that a launcher keeps, one for each batch size and kind of arguments."""

OPTIONS: dict[str, Any] = {"enable_fp_fusion": False}
"""Options of every kernel: floats are rounded as PyTorch's operations round them."""


class Launcher:
    """A kernel with arguments that stay the same: tensors in fixed places, and constants.

    A first launch goes through Triton, which compiles. Later ones with an equal key go to the compiled kernel, with
    addresses in place of tensors: that takes a tenth of the time.

    Args:
        kernel: The kernel: it takes the tensors, then what changes between launches, then the constants.
        tensors: The tensors; whoever has the launcher keeps them.
        constants: The constants by name, in the kernel's order, and Triton's options.
    """

    def __init__(self, kernel: Any, tensors: tuple[Tensor, ...], constants: dict[str, Any]) -> None:
        self._kernel, self._tensors, self._constants = kernel, tensors, OPTIONS | constants
        self._device = tensors[0].device
        self._on_gpu = self._device.type == "cuda"
        self._addresses = tuple(tensor.data_ptr() for tensor in tensors)
        self._behind = tuple(constants[name] for name in kernel.arg_names if name in constants)
        self._compiled: dict[Any, Any] = {}

    def __call__(self, grid: tuple[int, int, int], key: Any, *changing: Any) -> None:
        """Launch the kernel on its tensors' device.

        Args:
            grid: Number of programs.
            key: Whatever the compiled form depends on: dtypes and alignment of changing tensors, and all integers.
            *changing: The arguments that change.
        """
        if self._on_gpu and torch.cuda.current_device() != self._device.index:
            with torch.cuda.device(self._device):
                self(grid, key, *changing)
            return
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compile(grid, key, changing)
            return
        run, function, metadata = compiled
        stream = torch._C._cuda_getCurrentRawStream(self._device.index) if self._on_gpu else 0
        run(*grid, stream, function, metadata, None, None, None, *self._addresses, *changing, *self._behind)

    def _compile(self, grid: tuple[int, int, int], key: Any, changing: tuple[Any, ...]) -> None:
        """Launch through Triton, and keep what it compiled."""
        compiled = self._kernel[grid](*self._tensors, *changing, **self._constants)
        if compiled is None:  # by Triton's interpreter
            return
        if len(self._compiled) >= MOST_KEPT:
            self._compiled.clear()
        self._compiled[key] = compiled.run, compiled.function, compiled.packed_metadata


class Launchers(dict[Any, Any]):
    """Launchers by name. A copy has none, since those of the original have its addresses."""

    def __reduce__(self) -> Any:
        return Launchers, ()
