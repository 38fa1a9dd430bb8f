"""Part "peers": draws of other libraries' buffers on the same device, and their memory."""

import importlib.util
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.device_check.figures import Figures
from benchmarks.device_check.reference_buffers import CumsumBuffer, FastTD3Buffer, ManiSkillBuffer
from benchmarks.device_check.sizes import ACTION, OBS, Sizes, chained, fields, filled, steps
from benchmarks.device_check.timing import eager_us
from replaylab.replay import NStep, Prioritized, Uniform
from replaylab.torch import DeviceReplay
from replaylab.torch.maniskill import ReplayBuffer

FASTTD3_FILE = "fast_td3_utils.py"
"""FastTD3's own file, used if it lies in the folder of wheels."""


def run(figures: Figures, sizes: Sizes, wheels: Path | None) -> None:
    """Measure all of it."""
    figures.attempt("cumsum and searchsorted", lambda: _cumsum(figures, sizes))
    figures.attempt("torchrl", lambda: _torchrl(figures, sizes))
    for n_steps in (1, 3):
        figures.attempt(f"FastTD3, n = {n_steps}", lambda n=n_steps: _fasttd3(figures, sizes, n, wheels))
    figures.attempt("FastTD3's memory", lambda: _memory(figures, sizes))
    figures.attempt("ManiSkill", lambda: _maniskill(figures, sizes))


def _cumsum(figures: Figures, sizes: Sizes) -> None:
    device = figures.device
    rows, priorities = torch.rand(sizes.capacity, 43, device=device), torch.rand(sizes.capacity, device=device)
    buffer = CumsumBuffer(rows, priorities)
    for count in sizes.batches:
        took = eager_us(lambda count=count: buffer.sample(count), device, sizes)
        figures.add(f"torch: cumsum + searchsorted + index of {count:,} rows", took, "µs")


def _torchrl(figures: Figures, sizes: Sizes) -> None:
    try:
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, PrioritizedSampler, RandomSampler
        from torchrl.data import ReplayBuffer as TorchRLBuffer
    except (ImportError, OSError, RuntimeError) as error:
        figures.skip("torchrl", f"it cannot be imported: {error}".splitlines()[0])
        return
    device, rows = figures.device, sizes.batches[0]
    mine = _our_prioritized(sizes, device)
    makers: dict[str, tuple[Callable[[], Any], float]] = {
        "uniform": (RandomSampler, 4),
        "prioritized": (partial(PrioritizedSampler, sizes.capacity, 0.6, 0.4), 10),
    }
    for name, (make_sampler, times) in makers.items():
        try:
            sampler = make_sampler()
        except RuntimeError as error:  # its compiled part does not fit this PyTorch
            figures.skip(f"torchrl {name}", f"{error}".splitlines()[0])
            continue
        storage = LazyTensorStorage(sizes.capacity, device=device)
        buffer = TorchRLBuffer(storage=storage, sampler=sampler, batch_size=rows)
        generator = torch.Generator(device).manual_seed(0)
        for start in range(0, sizes.capacity, 2**16):
            count = min(2**16, sizes.capacity - start)
            ids = buffer.extend(TensorDict(steps(device, count, generator), batch_size=count))
            if name == "prioritized":
                buffer.update_priority(ids, torch.rand(count, generator=generator, device=device))
        took = eager_us(buffer.sample, device, sizes)
        figures.add(f"torchrl {name}: sample of {rows:,} rows", took, "µs")
        ratio = mine / took
        what = f"DeviceReplay prioritized, called from Python, of torchrl {name}"
        figures.add(what, ratio, "×", f"≤ 1/{times}", ratio <= 1 / times, note=f"{mine:.1f} µs")


def _our_prioritized(sizes: Sizes, device: torch.device) -> float:
    lab = filled(sizes.capacity, sizes.envs, device, Prioritized(0.6, 0.4), next_obs="derived")
    return eager_us(lambda: lab.sample(sizes.batches[0]), device, sizes)


def _fasttd3(figures: Figures, sizes: Sizes, n_steps: int, wheels: Path | None) -> None:
    device, rows = figures.device, sizes.batches[2]
    envs, length = sizes.envs, sizes.capacity // sizes.envs
    per_env = -(-rows // envs)
    shape = (envs, length, OBS, ACTION)
    original = None if wheels is None else _original_fasttd3(figures, wheels)
    if original is None:
        reference = FastTD3Buffer(*shape, n_steps, 0.99, device)
        draw, add, source = reference.sample, reference.add, "operations of"
    else:
        buffer = original(*shape, n_critic_obs=OBS, n_steps=n_steps, gamma=0.99, device=device)
        draw, add, source = buffer.sample, partial(_extend, buffer), "original of"
    store, mine = _our_fasttd3(shape, n_steps, device)
    turns = itertools.cycle(chained(device, envs, torch.Generator(device).manual_seed(0)))
    for _ in range(length + 2):
        step = next(turns)
        add(step)
        store(step)
    how = (device, sizes)
    took = eager_us(lambda: draw(per_env), *how)
    figures.add(f"{source} FastTD3's buffer: {envs * per_env:,} rows, n = {n_steps}", took, "µs")
    our_time = eager_us(lambda: mine(per_env), *how)
    times = {1: 2, 3: 5}[n_steps]
    ratio = took / our_time
    what = f"ours in its place, n = {n_steps}, faster by"
    figures.add(what, ratio, "×", f"≥ {times} ×", ratio >= times, note=f"{our_time:.1f} µs")


def _original_fasttd3(figures: Figures, wheels: Path) -> Any:
    """Return FastTD3's class if its file can be imported."""
    path = wheels / FASTTD3_FILE
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("fast_td3_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        figures.skip("FastTD3's own buffer", str(error))
        return None
    return module.SimpleReplayBuffer


def _extend(buffer: Any, step: dict[str, torch.Tensor]) -> None:
    from tensordict import TensorDict

    ended = step["terminated"] | step["truncated"]
    after = {"observations": step["next_obs"], "rewards": step["reward"]}
    after |= {"dones": ended.long(), "truncations": step["truncated"].long()}
    buffer.extend(
        TensorDict({"observations": step["obs"], "actions": step["action"], "next": after}, batch_size=len(ended))
    )


def _our_fasttd3(
    shape: tuple[int, int, int, int], n_steps: int, device: torch.device
) -> tuple[Callable[[dict[str, torch.Tensor]], Any], Callable[[int], Any]]:
    """Return what stores a step and what draws in our replay; through FastTD3's calls, where tensordict is there."""
    envs, length, obs, action = shape
    try:
        from replaylab.torch.fasttd3 import SimpleReplayBuffer
    except ImportError:
        replay = DeviceReplay(
            envs * length, fields(obs, action), num_envs=envs, transforms=[NStep(n_steps, 0.99)], next_obs="derived",
            sampler=Uniform(), device=device, seed=0,
        )  # fmt: skip
        return lambda step: replay.add(**step), lambda per_env: replay.sample(envs * per_env)
    buffer = SimpleReplayBuffer(*shape, n_steps=n_steps, device=device, seed=0)
    return partial(_extend, buffer), buffer.sample


def _memory(figures: Figures, sizes: Sizes) -> None:
    """Compare bytes; the side ring and priorities are counted."""
    cpu = torch.device("cpu")  # sizes do not depend on the device
    envs, length = 64, max(256, sizes.capacity // 64 // 16)
    for (obs, action), most in (((OBS, ACTION), 0.75), ((376, 17), 0.60)):
        fasttd3_bytes = FastTD3Buffer(envs, length, obs, action, 1, 0.99, cpu).nbytes
        for sampler in (Uniform(), Prioritized(0.6, 0.4)):
            lab = DeviceReplay(
                envs * length, fields(obs, action), num_envs=envs, sampler=sampler, next_obs="derived", device=cpu
            )
            ratio = lab.nbytes / fasttd3_bytes
            what = f"memory of {type(sampler).__name__} at {(obs, action)}, of FastTD3's"
            figures.add(what, ratio, "×", f"≤ {most:.2f} ×", ratio <= most, anywhere=True)


def _maniskill(figures: Figures, sizes: Sizes) -> None:
    device, rows, envs = figures.device, sizes.batches[1], sizes.envs
    maniskill = ManiSkillBuffer(envs, sizes.capacity, OBS, ACTION, device)
    spaces = {
        "single_observation_space": SimpleNamespace(shape=(OBS,)),
        "single_action_space": SimpleNamespace(shape=(ACTION,)),
    }
    lab = ReplayBuffer(SimpleNamespace(**spaces), envs, sizes.capacity, device, device, seed=0)
    turns = itertools.cycle(chained(device, envs, torch.Generator(device).manual_seed(0)))
    for _ in range(sizes.capacity // envs + 2):
        step = next(turns)
        maniskill.add(step)
        lab.add(step["obs"], step["next_obs"], step["action"], step["reward"], step["terminated"])
    how = (device, sizes)
    took = eager_us(lambda: maniskill.sample(rows), *how)
    figures.add(f"operations of ManiSkill's buffer: {rows:,} rows", took, "µs")
    mine = eager_us(lambda: lab.sample(rows), *how)
    ratio = took / mine
    figures.add("ours in its place, faster by", ratio, "×", "≥ 4 ×", ratio >= 4, note=f"{mine:.1f} µs")
