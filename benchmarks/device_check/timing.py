"""Microseconds of a call: from Python, and in a CUDA graph."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.device_check.sizes import Sizes

Call = Callable[[], Any]

WARM_UP = 0.2
"""Seconds of calls before a measurement on a GPU, after which its clocks have risen."""

GRAPH_CALLS = 20
"""Calls in one graph, so that the time of launching a graph counts for little."""


def synchronize(device: torch.device) -> None:
    """Wait for a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def warmed(call: Call, device: torch.device) -> None:
    """Call three times, and on a GPU until its clocks have risen."""
    ends = time.perf_counter() + (WARM_UP if device.type == "cuda" else 0.0)
    for _ in range(3):
        call()
    synchronize(device)
    while time.perf_counter() < ends:
        call()
        synchronize(device)


def eager_us(call: Call, device: torch.device, sizes: Sizes) -> float:
    """Return the time of a call from Python: the median of blocks of calls, each with the device's work."""
    warmed(call, device)
    times = []
    for _ in range(sizes.blocks):
        start = time.perf_counter_ns()
        for _ in range(sizes.calls):
            call()
        synchronize(device)
        times.append((time.perf_counter_ns() - start) / sizes.calls / 1_000)
    return statistics.median(times)


def host_us(call: Call, device: torch.device, sizes: Sizes) -> float:
    """Return the time until a call returns, whatever the device still has to do."""
    warmed(call, device)
    times = []
    for _ in range(sizes.blocks):
        synchronize(device)
        start = time.perf_counter_ns()
        for _ in range(sizes.calls):
            call()
        times.append((time.perf_counter_ns() - start) / sizes.calls / 1_000)
    return statistics.median(times)


def captured(call: Call, calls: int = 1) -> torch.cuda.CUDAGraph:
    """Return a CUDA graph of some calls; the call ran three times before, so that its kernels are loaded."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def graph_us(call: Call, device: torch.device, sizes: Sizes, between: Call | None = None) -> float:
    """Return the time of a call as one of 20 in a graph; on a CPU, which has no graphs, of a call from Python.

    Args:
        call: The call.
        device: Device that it uses.
        sizes: How often.
        between: Called before each replay, outside of the time: it may write new values into tensors.
    """
    if device.type != "cuda":
        return eager_us(call, device, sizes)
    graph = captured(call, GRAPH_CALLS)
    warmed(graph.replay, device)
    times = []
    for _ in range(2 * sizes.blocks):
        if between is not None:
            between()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1_000 / GRAPH_CALLS)
    return statistics.median(times)
