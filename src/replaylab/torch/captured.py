"""Functions whose work on a GPU is captured once in a CUDA graph, and launched again by each call."""

import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

Results = TypeVar("Results")

EAGER_CALLS = 3
"""So many calls run operation by operation: libraries allocate their workspaces, optimizers their averages, and Triton
compiles its kernels. Nothing of this may happen in a capture."""


def capturing(device: torch.device) -> bool:
    """Whether work on a device is recorded into a CUDA graph now."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Captured(Generic[Results]):
    """A function without arguments whose work on a GPU is captured in a CUDA graph, after three calls without.

    All values that change between calls must be in tensors whose memory stays the same. The function must not wait for
    the device, and its Python code is not run again. The results of a graph are overwritten by the next call.

    Args:
        function: The function.
        device: Device that it uses; on any device but a GPU, it is called each time.
    """

    def __init__(self, function: Callable[[], Results], device: torch.device) -> None:
        self._function, self._device, self._calls = function, device, 0
        self._replay: Callable[[], None] | None = None
        self._results: Results

    def __call__(self) -> Results:
        """Do it, and return the function's results."""
        if self._replay is not None:
            self._replay()
            return self._results
        if self._device.type != "cuda":
            return self._function()
        self._calls += 1
        with torch.cuda.device(self._device):
            if self._calls <= EAGER_CALLS:
                return self._beside()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._results = self._function()
            self._replay = graph.replay
            self._replay()
        return self._results

    def _beside(self) -> Results:
        """Call the function on another stream, as a capture does: gradients remember the stream of the first call."""
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        beside.wait_stream(current)
        with torch.cuda.stream(beside), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*constructed with capturable=True")  # optimizers, before the capture
            results = self._function()
        current.wait_stream(beside)
        return results
