"""Draws and batches by Triton's kernels: one launch, and for priorities two, into one block of memory."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from replaylab.torch.batches.block import Block
from replaylab.torch.drawing.philox import RandomStream
from replaylab.torch.drawing.priority_tree import levels
from replaylab.torch.drawing.samplers import Draws, Kind
from replaylab.torch.launching import Launcher, Launchers
from replaylab.torch.operators import LIBRARY
from replaylab.torch.rows.assembly import Assembly

MOST_UNROLLED = 16
"""Largest n of n-step returns and of frame stacks in a kernel."""

MOST = 2**62
"""More than any leaf."""

DRAWN = 16
"""Rows of a program that descends the tree: few, so that small batches occupy many of the GPU's processors."""

ROWS, WORDS = 16, 32
"""Rows and words that a program copies."""

WIDE = 256
WIDE_ROWS, WIDE_WORDS = 4, 512
"""The same where a row of a batch has more words than `WIDE`, as with pictures."""


class Tensors(NamedTuple):
    """Tensors that the kernels take, in the order of `gather_kernel`; they change the first four."""

    draws: Tensor
    counts: Tensor
    call: Tensor
    scratch: Tensor
    keys: Tensor
    scheduled: Tensor
    head: Tensor
    tail: Tensor
    frames: Tensor
    rest: Tensor
    flags: Tensor
    side: Tensor
    powers: Tensor
    plan: Tensor
    sums: Tensor


CHANGED = 4
"""Number of `Tensors` that the kernels change."""


class Recipe(NamedTuple):
    """Constants of the kernels, by name: everything that does not change between the batches of a replay."""

    KIND: int
    CAPACITY: int
    ENVS: int
    WIDTH: int
    FRAME_WIDTH: int
    COLUMN: int
    STEPS: int
    STACK: int
    ZERO: int
    DERIVED: int
    COPIED: int
    STRATIFIED: int = 0
    WEIGHTED: int = 0
    BY_BATCH: int = 0
    BURST: int = 1
    LEAST: int = 1
    LOG_KEPT: float = 0.0


class Sampling:
    """The launches that draw batches.

    Args:
        tensors: What the kernels take.
        recipe: What does not change.
    """

    def __init__(self, tensors: Tensors, recipe: Recipe) -> None:
        from replaylab.torch.batches import kernels
        from replaylab.torch.drawing import kernels as drawing

        constants: dict[str, Any] = recipe._asdict()
        tree, self._draw = levels(recipe.CAPACITY), None
        if recipe.KIND == Kind.PROPORTIONAL:
            drawn_from = (tensors.sums, tensors.keys, tensors.draws, tensors.head, tensors.tail, tensors.scratch)
            how = {name: constants[name] for name in ("CAPACITY", "STRATIFIED")}
            how |= {"STARTS": tree.starts, "DEPTH": tree.depth, "RANGED": recipe.DERIVED, "SIZE": DRAWN, "num_warps": 1}
            self._draw = Launcher(drawing.draw_kernel, drawn_from, how)
        self._size, words, most = (ROWS, WORDS, 2) if recipe.COPIED <= WIDE else (WIDE_ROWS, WIDE_WORDS, 1)
        parts = min(most, max(1, -(-recipe.COPIED // words)))
        self._programs = max(1, -(-recipe.COPIED // (words * parts)))
        constants |= {"SIZE": self._size, "WORDS": words, "PARTS": parts, "num_warps": 4}
        self._gather = Launcher(kernels.gather_kernel, tensors[:-1], constants)

    def __call__(self, block: Tensor, rows: int) -> None:
        """Draw a batch into a block of memory."""
        if self._draw is not None:
            self._draw((-(-rows // DRAWN), 1, 1), None, block, rows)
        self._gather((-(-rows // self._size), self._programs, 1), None, block, rows)


def _sample_batch(changed: list[Tensor], others: list[Tensor], recipe: list[float], rows: int, nbytes: int) -> Tensor:
    """Draw a batch; the operator of compiled functions."""
    *numbers, log_kept = recipe
    kind = Recipe(*map(int, numbers), LOG_KEPT=log_kept)  # type: ignore[misc]
    block = torch.empty(nbytes, dtype=torch.uint8, device=changed[0].device)
    Sampling(Tensors(*changed, *others), kind)(block, rows)
    return block


LIBRARY.define(  # type: ignore[no-untyped-call]
    "sample_batch(Tensor(a!)[] changed, Tensor[] others, float[] recipe, int rows, int nbytes) -> Tensor"
)
LIBRARY.impl("sample_batch", _sample_batch, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake(
    "replaylab::sample_batch",
    lambda changed, *others: changed[0].new_empty(others[-1], dtype=torch.uint8),
    lib=LIBRARY,
)


class BatchKernels(nn.Module):
    """The batches of an assembly by kernels of Triton.

    Args:
        assembly: The columns.
        draws: The draws.
        stream: The random numbers.
        counts: Counters, the first of which is the number of drawn rows.
    """

    counts: Tensor
    plan: Tensor
    scratch: Tensor

    def __init__(self, assembly: Assembly, draws: Draws, stream: RandomStream, counts: Tensor) -> None:
        super().__init__()
        self.assembly, self.draws, self.stream, self.block = assembly, draws, stream, Block(assembly)
        self.register_buffer("counts", counts, persistent=False)
        self.register_buffer("plan", self.block.plan.to(counts.device), persistent=False)
        scratch = torch.tensor([0, MOST, MOST, 0, 0, 0]).to(counts.device)
        self.register_buffer("scratch", scratch, persistent=False)
        self._device, self._launchers, self._recipe = counts.device, Launchers(), self._make_recipe()
        self._numbers = [float(number) for number in self._recipe]

    def sample(self, batch_size: int) -> dict[str, Tensor]:
        """Draw a batch and return its flat columns."""
        rows = self.draws.sampler.rows(batch_size)
        nbytes = self.block.nbytes(rows)
        if is_compiling():
            tensors = self._tensors()
            changed, others = list(tensors[:CHANGED]), list(tensors[CHANGED:])
            block = torch.ops.replaylab.sample_batch(changed, others, self._numbers, rows, nbytes)
        else:
            block = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
            sampling = self._launchers.get("sampling")
            if sampling is None:
                sampling = self._launchers["sampling"] = Sampling(self._tensors(), self._recipe)
            sampling(block, rows)
        return self.block.columns(block, rows)

    def _tensors(self) -> Tensors:
        ring, draws, stream = self.assembly.ring, self.draws, self.stream
        sums = ring.head if draws.tree is None else draws.tree.sums
        counters = (
            stream.draws,
            self.counts,
            draws.call,
            self.scratch,
            stream.keys,
            draws.scheduled,
            ring.head,
            ring.tail,
        )
        return Tensors(*counters, ring.frames, ring.rest, ring.flags, ring.side, self.assembly.powers, self.plan, sums)

    def _make_recipe(self) -> Recipe:
        assembly, ring = self.assembly, self.assembly.ring
        stack = assembly.stack
        return Recipe(
            CAPACITY=ring.capacity,
            ENVS=ring.envs,
            WIDTH=ring.rest.shape[1],
            FRAME_WIDTH=ring.frames.shape[1],
            COLUMN=assembly.reward_column,
            STEPS=len(assembly.powers) - 1,
            STACK=0 if stack is None else stack.length,
            ZERO=stack is not None and stack.padding == "zero",
            DERIVED=assembly.derived,
            COPIED=self.block.copied,
            **self.draws.recipe(),
        )
