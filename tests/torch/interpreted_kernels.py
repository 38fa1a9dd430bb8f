"""Run by `test_kernels.py` in a process with TRITON_INTERPRET=1: kernels against PyTorch's operations, bit for bit."""

import itertools
from unittest.mock import patch

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from replaylab.replay import LAP, Combined, Field, FrameStack, Geometric, NStep, Prioritized, Recency, ReLo, Uniform
from replaylab.torch import DeviceReplay
from replaylab.torch.launching import Launcher
from replaylab.trees import flatten

FLAG = Field((), bool)
OBS = {"speed": Field((2,)), "camera": Field((2, 3), "uint8"), "clock": Field((), "int64")}
FIELDS = {
    "obs": OBS,
    "reward": Field(),
    "next_obs": OBS,
    "terminated": FLAG,
    "truncated": FLAG,
    "tag": Field((3,), "int16"),
}
SAMPLERS = (
    Prioritized(0.6, 0.4),
    Prioritized(1.0, 0.4, stratified=False, new_steps="largest_ever", normalize="none"),
    ReLo(0.3, 0.4),
    LAP(0.4),
    Uniform(),
    Uniform(stratified=True),
    Geometric(30.0),
    Recency(0.999, least=3, burst=2),
    Combined(),
)


def field_dtype(field):
    return torch.from_numpy(np.zeros(0, field.dtype)).dtype


def numbers(field, length, generator):
    """Random numbers of a field, of two environments."""
    numbers = torch.rand((length, 2, *field.shape), generator=generator) * 200
    return numbers.to(field_dtype(field))


def buffers(replay):
    return {name: buffer for name, buffer in replay.named_buffers() if "tickets" not in name}


def assert_same_batches(batch, other):
    other_columns = dict(flatten(dict(other)))
    for path, column in flatten(dict(batch)):
        assert torch.equal(column, other_columns[path]), path
        assert column.dtype == other_columns[path].dtype, path
        assert column.is_contiguous() == other_columns[path].is_contiguous(), path


def assert_same_buffers(replay, other):
    for name, buffer in buffers(replay).items():
        assert torch.equal(buffer, buffers(other)[name]), name


def compare(sampler, next_obs, capacity, wide):
    """Compare two replays; `wide`: with programs as for wide rows."""
    from replaylab.torch.batches import sampling
    from replaylab.torch.storing import launches as storing

    storing.ROWS = sampling.ROWS = sampling.DRAWN = (
        16 if capacity < 100 else 256
    )  # a program takes long here, its rows do not
    storing.WIDE = sampling.WIDE = 2 if wide else 256
    options = {"num_envs": 2, "sampler": sampler, "next_obs": next_obs, "device": "cpu"}
    options["final_obs_share"] = 1.0 if capacity < 100 else 0.1  # without and with steps that are dropped early
    stack = FrameStack(3, ("obs.camera", "obs.clock"), padding="zero" if capacity > 1_000 else "repeat")
    options["transforms"] = [NStep(3, 0.97), stack] if capacity > 1_000 else [stack] * (next_obs == "derived")
    options["half"] = {"obs.speed": "bfloat16" if next_obs == "derived" else "float16"}
    replays = [DeviceReplay(capacity, FIELDS, kernels=run_by, seed=9, **options) for run_by in ("torch", "triton")]
    assert [replay.parts.kernels is not None for replay in replays] == [False, True]
    generator = torch.Generator().manual_seed(4)
    latest = {name: numbers(field, 1, generator)[0] for name, field in OBS.items()}
    for length in (1, 3, capacity // 4, capacity // 2):
        obs, next_obs = ({name: numbers(field, length, generator) for name, field in OBS.items()} for _ in range(2))
        follows = torch.rand((length, 2), generator=generator) < 0.7
        for name, values in obs.items():  # most steps follow the step before, also that of the call before
            values[follows] = torch.cat((latest[name][None], next_obs[name][:-1]))[follows]
        latest = {name: values[-1] for name, values in next_obs.items()}
        reward, tag = torch.rand((length, 2), generator=generator), numbers(FIELDS["tag"], length, generator)
        truncated, terminated = torch.rand((2, length, 2), generator=generator) < 0.15
        batches = []
        for replay in replays:
            flags = {"terminated": terminated, "truncated": truncated}
            replay.extend(obs=obs, next_obs=next_obs, reward=reward, tag=tag, **flags)
            batches.append(replay.sample(150))
        assert_same_batches(*batches)
        ids = torch.cat((batches[0].id, torch.tensor([-1, 10**12, 0])))
        values = torch.randn(len(ids), generator=generator) * 10.0 ** torch.randint(
            -9, 9, (len(ids),), generator=generator
        )
        values[3:6] = torch.tensor([torch.nan, torch.inf, 0.0])
        feedbacks = [{"td_error": values}, {"priority": values.double()}][: 1 + sampler.takes_priorities]
        for feedback in feedbacks:
            applied = [replay.update_priorities(ids, **feedback) for replay in replays]
            assert torch.equal(*applied)
        assert_same_buffers(*replays)
    if sampler.takes_priorities:
        zeros = torch.arange(replays[0].next_id - capacity, replays[0].next_id)
        batches = []
        for replay in replays:
            replay.update_priorities(zeros, priority=0.0)
            with patch("replaylab.torch.drawing.samplers.is_compiling", lambda: True):  # nothing is waited for
                batches.append(replay.sample(150))
        assert (batches[0].id == -1).all()
        assert_same_batches(*batches)
        assert_same_buffers(*replays)


def compiled_calls(sampler, next_obs):
    """Store and draw in compiled functions, whose operators run the same kernels."""
    options = {
        "num_envs": 2,
        "sampler": sampler,
        "next_obs": next_obs,
        "device": "cpu",
        "half": {"obs.speed": "float16"},
    }
    replays = [DeviceReplay(40, FIELDS, seed=0, kernels="triton", **options) for _ in range(2)]
    store, draw = (
        torch.compile(method, backend="aot_eager", fullgraph=True) for method in (replays[1].extend, replays[1].sample)
    )
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        obs, next_obs = ({name: numbers(field, 2, generator) for name, field in OBS.items()} for _ in range(2))
        steps = {"obs": obs, "next_obs": next_obs, "reward": torch.rand((2, 2), generator=generator)}
        steps |= {name: torch.rand((2, 2), generator=generator) < 0.3 for name in ("terminated", "truncated")}
        steps["tag"] = numbers(FIELDS["tag"], 2, generator)
        assert torch.equal(replays[0].extend(**steps), store(**steps))
        assert_same_batches(replays[0].sample(9), draw(9))
        assert_same_buffers(*replays)


def odd_fields():
    """Store complex numbers, and words of bytes at an odd address, which kernels must not read there."""
    fields = {"bytes": Field((4,), "uint8"), "number": Field((), "complex64"), "truncated": FLAG}
    replays = [DeviceReplay(8, fields, device="cpu", seed=0, kernels=kernels) for kernels in ("torch", "triton")]
    numbers = torch.complex(torch.arange(5.0), torch.ones(5))
    odd = torch.arange(21, dtype=torch.uint8)[1:].view(5, 4)
    steps = {"bytes": odd, "number": numbers, "truncated": numbers.real > 2}
    addresses, call = [], Launcher.__call__

    def recorded(launcher, grid, key, values, *others):
        addresses.append(values[0].data_ptr() % 4)
        call(launcher, grid, key, values, *others)

    with patch.object(Launcher, "__call__", recorded):
        for replay in replays:
            replay.extend(**steps)
    assert (odd.data_ptr() % 4, addresses) == (1, [0])
    assert_same_buffers(*replays)


class Operations(TorchDispatchMode):
    """Records the names of PyTorch's operations."""

    def __enter__(self):
        self.names = set()
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def counted_launches(sampler, next_obs, adds, updates):
    """Count the launches of calls, beside which PyTorch only allocates."""
    replay = DeviceReplay(
        40, FIELDS, num_envs=2, sampler=sampler, next_obs=next_obs, device="cpu", seed=0, kernels="triton"
    )
    obs = {name: torch.zeros((2, *field.shape), dtype=field_dtype(field)) for name, field in OBS.items()}
    flag, ids, errors = torch.zeros(2, dtype=torch.bool), torch.arange(2), torch.ones(2)
    steps = {"obs": obs, "next_obs": obs, "reward": torch.zeros(2), "tag": torch.zeros((2, 3), dtype=torch.int16)}
    calls = (
        (adds, lambda: replay.add(**steps, terminated=flag, truncated=flag)),
        (updates, lambda: replay.update_priorities(ids, errors)),
    )
    for wanted, call in calls:
        launches = []
        with patch.object(Launcher, "__call__", lambda self, *_: launches.append(self)), Operations() as operations:  # noqa: B023
            call()
        assert len(launches) == wanted, launches
        assert operations.names <= {"arange", "ones", "empty", "empty_like", "slice", "select", "view"}, (
            operations.names
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number, (sampler, next_obs) in enumerate(itertools.product(SAMPLERS, ("stored", "derived"))):
        compare(sampler, next_obs, (40, 1_100)[(number + number // 2) % 2], wide=number % 4 == 3)
    compiled_calls(SAMPLERS[0], "derived")
    compiled_calls(Uniform(), "stored")
    odd_fields()
    counted_launches(Uniform(), "stored", 1, 1)
    counted_launches(SAMPLERS[0], "stored", 1, 2)
    counted_launches(SAMPLERS[0], "derived", 2, 2)
    print("equal")
