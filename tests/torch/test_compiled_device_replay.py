"""Adding, drawing and feeding back in a compiled function: no graph break, no copy of the storage, no other result."""

import math
import re

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from replaylab.replay import Field, Linear, NStep, Prioritized
from replaylab.torch import DeviceReplay

FIELDS = {
    "obs": Field((3,)),
    "action": Field((), "int64"),
    "reward": Field(),
    "next_obs": Field((3,)),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}

CAPACITY = 2**13  # more than any batch or tree node of these tests


def make(**options):
    options = {"sampler": Prioritized(0.6, 0.4), "transforms": [NStep(3, 0.9)], "next_obs": "derived"} | options
    return DeviceReplay(CAPACITY, FIELDS, num_envs=2, device="cpu", seed=0, **options)


def train_step(replay, obs, next_obs, reward):
    flags = reward > 1.0
    action = torch.ones(2, dtype=torch.int64)
    replay.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=flags, truncated=flags)
    batch = replay.sample(8)
    applied = replay.update_priorities(batch.id, batch.reward - 1.5)
    return batch.id, batch.obs, batch.next_obs, batch.discount, batch.weight, applied


def recording(sizes):
    """A backend that runs a graph as it is, and notes the size of each tensor that it makes."""

    def compile_graph(graph, _):
        def run(*args):
            taken = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, torch.Tensor)}

            class Recorder(torch.fx.Interpreter):
                def run_node(self, node):
                    result = super().run_node(node)
                    if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in taken:
                        sizes.append(result.numel())
                    return result

            return Recorder(graph).run(*args)

        return run

    return compile_graph


def test_a_training_step_is_one_graph_with_the_same_results():
    generator, sizes = torch.Generator().manual_seed(1), []
    torch.compiler.reset()
    compiled = torch.compile(train_step, fullgraph=True, backend=recording(sizes), dynamic=False)
    eager, replay = make(), make()
    before = [buffer.data_ptr() for buffer in replay.buffers()]
    for number in range(4):
        values = [torch.randn(shape, generator=generator) for shape in ((2, 3), (2, 3), (2,))]
        results = [train_step(eager, *values), (compiled if number else train_step)(replay, *values)]
        for wanted, compiled_result in zip(*results, strict=True):
            assert torch.equal(wanted, compiled_result)
    for wanted, compiled_result in zip(eager.buffers(), replay.buffers(), strict=True):
        assert torch.equal(wanted, compiled_result)
    assert [buffer.data_ptr() for buffer in replay.buffers()] == before
    assert 0 < max(sizes) < CAPACITY


@pytest.mark.filterwarnings("ignore:.*stays at its start value")
@pytest.mark.parametrize("beta", [0.4, Linear(0.4, 1.0)])
def test_the_first_draw_can_be_a_compiled_one(beta):
    """Its weights have the β of the start."""
    torch.compiler.reset()
    batches = []
    for compiled in (False, True):
        replay = DeviceReplay(8, {"x": Field()}, sampler=Prioritized(1.0, beta), device="cpu", seed=0)
        ids = replay.extend(x=torch.arange(8.0))
        replay.update_priorities(ids, priority=1.0 + torch.arange(8.0))
        draw = torch.compile(replay.sample, fullgraph=True, backend="eager") if compiled else replay.sample
        batches.append(draw(16))
    assert torch.equal(batches[0].id, batches[1].id)
    assert torch.equal(batches[0].weight, batches[1].weight)
    assert batches[0].weight.unique().numel() > 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor's own
def test_inductor_copies_no_storage():
    generator = torch.Generator().manual_seed(1)
    torch.compiler.reset()
    eager, replay = make(), make()
    compiled = torch.compile(train_step, fullgraph=True, dynamic=False)
    for number in range(3):
        values = [torch.randn(shape, generator=generator) for shape in ((2, 3), (2, 3), (2,))]
        wanted = train_step(eager, *values)
        if number == 1:
            compiled_results, code = run_and_get_code(compiled, replay, *values)
            allocations = re.findall(r"empty_strided_cpu\(\(([\d, ]*)\)", "".join(code))
            sizes = [math.prod(map(int, re.findall(r"\d+", shape))) for shape in allocations]
            assert 0 < max(sizes) < CAPACITY
        else:
            compiled_results = (compiled if number else train_step)(replay, *values)
        for expected, other in zip(wanted, compiled_results, strict=True):
            assert torch.equal(expected, other)


def test_no_operation_waits_for_the_device():
    """Tensors of the "meta" device have no values: whatever reads one raises."""
    replay = make()
    for name, module in replay.named_modules():
        for buffer in list(module._buffers):
            module._buffers[buffer] = module._buffers[buffer].to("meta")
            assert name is not None
    object.__setattr__(replay.options, "device", torch.device("meta"))
    replay._any_stored = True
    values = [torch.empty(shape, device="meta") for shape in ((2, 3), (2, 3), (2,))]
    flags = values[2] > 1.0
    replay.add(
        obs=values[0],
        action=torch.ones(2, dtype=torch.int64, device="meta"),
        reward=values[2],
        next_obs=values[1],
        terminated=flags,
        truncated=flags,
    )
    batch = replay.sample(8)
    replay.update_priorities(batch.id, batch.reward)
    replay.probabilities(batch.id)
    replay.end_episode()
    assert batch.obs.shape == (8, 3)


def test_operators_are_declared_as_they_are():
    """Tensors that the operators change, and the shapes that a compiler sees."""
    replay = make()
    values = torch.rand(2, 3), torch.rand(2, 3), torch.rand(2)
    train_step(replay, *values)
    ring, draws, ids = replay.parts.ring, replay.parts.draws, torch.tensor([1, 1, 0])
    tree, (width, rest_width) = draws.tree, (ring.frames.shape[1], ring.rest.shape[1])
    rows = [torch.ones(2, columns, dtype=torch.int32) for columns in (width, rest_width, width)]
    rows.append(torch.ones(2, dtype=torch.uint8))
    counts = replay.parts.counts
    changed = [tree.sums, tree.peaks, tree.waiting, tree.tickets, tree.updates, draws.largest_ever, tree.tally, counts]
    others = [draws.numbers, ring.head, ring.tail]
    calls = {
        "update_leaves": (changed, others, ids, values[0][0], 0, 2**40, CAPACITY, False),
        "store_steps": (ring.tensors, [tree.sums, tree.peaks, draws.largest_ever], rows, 2, False),
    }
    for name, arguments in calls.items():
        function = getattr(torch.ops.replaylab, name).default
        torch.library.opcheck(function, arguments, test_utils=("test_schema", "test_faketensor"))
