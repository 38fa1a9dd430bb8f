"""Microseconds of a call: from Python, and as a replay of a CUDA graph."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], Any]


def synchronize(device: torch.device) -> None:
    """Wait for a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def eager_us(call: Call, device: torch.device, calls: int, blocks: int) -> float:
    """Return the time of a call from Python: the median of blocks of calls, each with the device's work."""
    for _ in range(max(3, calls // 4)):
        call()
    synchronize(device)
    times = []
    for _ in range(blocks):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        synchronize(device)
        times.append((time.perf_counter_ns() - start) / calls / 1_000)
    return statistics.median(times)


def host_us(call: Call, device: torch.device, calls: int, blocks: int) -> float:
    """Return the time until a call returns, whatever the device still has to do."""
    for _ in range(3):
        call()
    times = []
    for _ in range(blocks):
        synchronize(device)
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - start) / calls / 1_000)
    return statistics.median(times)


def captured(call: Call) -> torch.cuda.CUDAGraph:
    """Return a CUDA graph of a call, which ran three times before, so that its kernels are loaded."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def graph_us(call: Call, device: torch.device, calls: int, blocks: int) -> float:
    """Return the time of a call as a graph that is replayed; on a CPU, which has no graphs, of a call from Python."""
    if device.type != "cuda":
        return eager_us(call, device, calls, blocks)
    graph = captured(call)
    times = []
    for _ in range(blocks + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1_000 / calls)
    return statistics.median(times[2:])
