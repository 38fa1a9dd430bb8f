"""Triton's kernels without a GPU: in its interpreter beside PyTorch's operations, and compiled for several GPUs."""

import os
import subprocess
import sys

import pytest
import torch

from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError
from replaylab.replay import Field, Prioritized
from replaylab.torch import DeviceReplay
from replaylab.torch.drawing.priority_tree import levels
from replaylab.torch.options import kernels_run
from tests.torch.worlds import never_waits

pytest.importorskip("triton", reason="Triton takes 1 GB: pip install 'replaylab[triton]'")

TARGETS = [("cuda", 75, 32), ("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)]
POINTER = "*i64"


def test_kernels_equal_pytorchs_operations():
    """In a separate process, since Triton reads the variable where a kernel is defined."""
    command = [sys.executable, "-m", "tests.torch.interpreted_kernels"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("equal"), ran.stderr[-3000:]


def test_kernels_on_a_cpu_are_refused():
    with pytest.raises(ConfigError, match="TRITON_INTERPRET=1"):
        DeviceReplay(8, {"x": Field()}, device="cpu", kernels="triton")
    assert not kernels_run(DeviceReplay(8, {"x": Field()}, device="cpu").options)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_kernels_compile(target):
    import triton
    from triton.backends.compiler import GPUTarget

    from replaylab.torch.batches import kernels as batch_kernels
    from replaylab.torch.batches.sampling import Recipe
    from replaylab.torch.drawing import kernels
    from replaylab.torch.drawing.launches import BLOCK
    from replaylab.torch.launching import OPTIONS
    from replaylab.torch.rows.packing import RowPacking
    from replaylab.torch.storing import kernels as storing_kernels
    from replaylab.torch.storing.launches import field_plan

    recipe = Recipe(1, 10**6, 1_000, 8, 17, 6, 3, 4, True, True, 43, True, True, True)._asdict()
    ring = {"CAPACITY": 10**6, "ENVS": 1_000}
    tree = {"STARTS": levels(10**6).starts, "DEPTH": 4, "CAPACITY": 10**6}
    copied = {"SIZE": 16, "WORDS": 32, "PARTS": 2}
    dtypes = {"speed": torch.float32, "count": torch.int16}, {"reward": torch.float32, "action": torch.float64}
    packings = [RowPacking(dict.fromkeys(row, (5,)), row, {"speed": torch.bfloat16}) for row in dtypes]
    plan = field_plan(packings, True, ENDS)
    del plan["num_warps"]
    fields = ("*fp32", "*i16", "*fp32", "*fp64", "*fp32", "*i16", "*i1", "*i1")
    signatures = {
        kernels.draw_kernel: (
            (*6 * (POINTER,), "*u8", "i32"),
            {**tree, "STRATIFIED": True, "RANGED": True, "SIZE": 16},
        ),
        kernels.feedback_kernel: (
            ("*i32", *4 * (POINTER,), "*fp64", *3 * (POINTER,), "*fp32", POINTER, "i32"),
            {**tree, "KIND": 0, "MOST": 2**40, "EVER": False, "SIZE": BLOCK},
        ),
        kernels.write_kernel: (
            (*2 * (POINTER,), "*i32", *5 * (POINTER,), "i32"),
            {"STARTS": tree["STARTS"], "DEPTH": 4, "EVER": False, "SIZE": BLOCK},
        ),
        kernels.count_kernel: ((*5 * (POINTER,), "i32"), {"SIZE": 1024}),
        kernels.probe_kernel: (("*fp64", "i32"), {"SIZE": 16}),
        batch_kernels.gather_kernel: (
            (*5 * (POINTER,), "*fp64", *2 * (POINTER,), *2 * ("*i32",), "*u8", "*i32", "*fp64", "*i32", "*u8", "i32"),
            {**recipe, **copied},
        ),
        storing_kernels.apart_kernel: (
            ("*i32", "*u8", *3 * (POINTER,), fields, POINTER, "i32"),
            {**ring, "FRAME_WIDTH": 6, **plan},
        ),
        storing_kernels.store_kernel: (
            (*2 * ("*i32",), "*u8", "*i32", *8 * (POINTER,), fields, POINTER, "i32"),
            {**ring, **tree, "SIDES": 10_000, "FRAME_WIDTH": 6, "WIDTH": 18, "EVER": False, **plan},
        ),
    }
    all_kernels = {
        kernel
        for module in (batch_kernels, kernels, storing_kernels)
        for name, kernel in vars(module).items()
        if name.endswith("_kernel")
    }
    assert set(signatures) == all_kernels
    variants = [(kernel, *form) for kernel, form in signatures.items()]
    types, constants = signatures[batch_kernels.gather_kernel]
    variants += [
        (batch_kernels.gather_kernel, types, {**constants, "KIND": kind, "LOG_KEPT": -0.1}) for kind in range(2, 6)
    ]
    types, constants = signatures[storing_kernels.store_kernel]
    variants.append((storing_kernels.store_kernel, types, {**constants, "SIDES": 0, "DEPTH": 0, "TRUNCATED_AT": -1}))
    for kernel, types, constants in variants:
        signature = dict(zip(kernel.arg_names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
        source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
        compiled = triton.compile(
            source,
            target=GPUTarget(*target),
            options={"num_warps": 1 if kernel is kernels.draw_kernel else 4, **OPTIONS},
        )
        assert compiled.asm["cubin" if target[0] == "cuda" else "hsaco"]


@pytest.mark.cuda
def test_a_gpu_draws_what_a_cpu_draws():
    generator = torch.Generator().manual_seed(0)
    options = {"sampler": Prioritized(0.6, 0.4), "seed": 3}
    replays = [DeviceReplay(512, {"x": Field()}, device=device, **options) for device in ("cpu", "cuda")]
    for _ in range(3):
        values = torch.rand(200, generator=generator)
        drawn = []
        for replay in replays:
            replay.extend(x=values)
            batch = replay.sample(64)
            replay.update_priorities(batch.id, batch.x)
            drawn.append(batch.id.cpu())
        assert torch.equal(*drawn)


@pytest.mark.cuda
def test_a_graph_of_a_training_step_equals_eager_steps():
    """Nothing waits for the GPU, so that a step can be captured."""

    def step(replay, x):
        replay.add(x=x)
        batch = replay.sample(64)
        replay.update_priorities(batch.id, batch.x)
        return batch.id

    options = {"sampler": Prioritized(0.6, 0.4), "num_envs": 16, "device": "cuda", "seed": 3}
    eager, graphed = (DeviceReplay(4_096, {"x": Field()}, **options) for _ in range(2))
    x = torch.zeros(16, device="cuda")
    with never_waits():
        for replay in (eager, graphed):
            for _ in range(3):
                step(replay, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids = step(graphed, x)
    for number in range(1_000):
        x.fill_(number % 7)
        graph.replay()
        assert torch.equal(ids, step(eager, x))
