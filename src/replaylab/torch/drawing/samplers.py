"""Samplers on a device: the draws of stored steps, and their probabilities."""

from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import LAP, Combined, Geometric, Prioritized, Recency, ReLo, Sampler, Uniform
from replaylab.torch.drawing.fixed_point import ONE, feedback_kind, largest_leaf
from replaylab.torch.drawing.launches import CHANGED, FeedbackLaunches, TreeTensors, count_launcher
from replaylab.torch.drawing.leaf_operators import draw_leaves, live_leaves, update_leaves, weigh_leaves
from replaylab.torch.drawing.philox import RandomStream
from replaylab.torch.drawing.power import exp2, exp2_m1, log2_1p, power
from replaylab.torch.drawing.priority_tree import MOST_UPDATES, PriorityTree
from replaylab.torch.launching import Launchers
from replaylab.torch.rows.step_ring import StepRing


class Drawn(NamedTuple):
    """Drawn steps: ids int64 (B,), probabilities (B,) and float32 weights (B,)."""

    ids: Tensor
    probability: Tensor
    weight: Tensor


class Kind(IntEnum):
    """Ways to draw, as `gather_kernel` knows them."""

    PROPORTIONAL, GEOMETRIC, RECENCY, COMBINED, UNIFORM = range(1, 6)


class Draws(nn.Module):
    """Draws for one sampler.

    Args:
        sampler: Configuration of the sampler.
        ring: The stored steps.
        real: The dtype of probabilities.
        triton: Whether kernels of Triton run.

    Attributes:
        scheduled: The sampler's number that may change over a run, ().
        call: Which draw of a burst is next, from 1 on, ().
        tree: The priorities, if there are any.
    """

    sampler: Sampler
    scheduled: Tensor
    call: Tensor
    tree: PriorityTree | None

    def __init__(self, sampler: Sampler, ring: StepRing, real: torch.dtype, triton: bool) -> None:
        super().__init__()
        self.sampler, self.ring, self.real, self.tree = sampler, ring, real, None
        self.triton, self._launchers = triton, Launchers()
        self.register_buffer("scheduled", torch.zeros_like(ring.head, dtype=real), persistent=False)
        self.register_buffer("call", torch.ones_like(ring.head), persistent=False)

    def draw(self, stream: RandomStream, rows: int, counts: Tensor) -> Drawn:
        """Draw a batch, and count its rows in the first of `counts`."""
        drawn = self.choose(stream, rows)
        self.finish()
        stream.draws.add_(1)
        counts[0].add_(len(drawn.ids))
        return drawn

    def choose(self, stream: RandomStream, rows: int) -> Drawn:
        """Return drawn steps."""
        ids = self.ids(stream, rows)
        return Drawn(ids, self.probabilities(ids, rows), torch.ones_like(ids, dtype=torch.float32))

    def ids(self, stream: RandomStream, rows: int) -> Tensor:
        """Return drawn ids."""
        raise NotImplementedError

    def recipe(self) -> dict[str, Any]:
        """Return the constants of `gather_kernel` that say how it draws."""
        raise NotImplementedError

    def finish(self) -> None:
        """Note that a batch was drawn."""

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:
        """Return the probability of each step to be a random row of the next batch."""
        raise NotImplementedError

    def update(self, ids: Tensor, values: Tensor, priorities: bool, counts: Tensor) -> Tensor:
        """Apply feedback, `priorities` or TD errors, and return how many steps were stored, ().

        Steps that were not stored and values that are not valid are added to the second and third of `counts`.
        """
        del values, priorities
        if self.triton and not is_compiling():
            launch = self._launchers.get("count")
            if launch is None:
                launch = self._launchers["count"] = count_launcher(counts, self.ring.head, self.ring.tail)
            ids, stored = ids.contiguous(), torch.empty_like(counts[0])
            launch((1, 1, 1), ids.data_ptr() % 16, ids, stored, len(ids))
            return stored
        stored = self.ring.stored(ids).sum()
        counts[1].add_(len(ids) - stored)
        return stored


class UniformDraws(Draws):
    """`Uniform`."""

    sampler: Uniform

    def ids(self, stream: RandomStream, rows: int) -> Tensor:
        """Return drawn ids."""
        return self.ring.tail + stream.targets(self.ring.size, rows, stratified=self.sampler.stratified)

    def recipe(self) -> dict[str, Any]:
        """Return the kernel's constants."""
        return {"KIND": Kind.UNIFORM, "STRATIFIED": self.sampler.stratified}

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:  # noqa: ARG002
        """Return 1/N for stored steps."""
        return self.ring.stored(ids).to(self.real) / self.ring.size


class CombinedDraws(Draws):
    """`Combined`: uniform draws, and the newest step as the last row."""

    sampler: Combined

    def ids(self, stream: RandomStream, rows: int) -> Tensor:
        """Return drawn ids."""
        ids = self.ring.tail + stream.targets(self.ring.size, rows)
        newest = (self.ring.head - 1).expand(1)
        return torch.cat((ids if self.sampler.mode == "plus" else ids[:-1], newest))

    def recipe(self) -> dict[str, Any]:
        """Return the kernel's constants."""
        return {"KIND": Kind.COMBINED}

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:
        """Return (U/N + [newest]) / (U + 1)."""
        if batch_size is None:
            raise ConfigError("`probabilities` of Combined needs `batch_size`; pass that of `sample`")
        uniform = batch_size - (self.sampler.mode == "replace")
        stored = self.ring.stored(ids).to(self.real)
        newest = (ids == self.ring.head - 1).to(self.real) * stored
        return (uniform * stored / self.ring.size + newest) / (uniform + 1)


class RecencyDraws(Draws):
    """`Recency`: uniform over the newest steps, fewer with each update of a burst."""

    sampler: Recency

    def _window(self) -> Tensor:
        size, exponent = self.ring.size, 1000.0 * self.call.to(self.real) / self.sampler.burst
        wanted = (size.to(self.real) * power(self.scheduled, exponent)).to(torch.int64)
        return torch.minimum(size, wanted.clamp(min=self.sampler.least))

    def ids(self, stream: RandomStream, rows: int) -> Tensor:
        """Return drawn ids."""
        return self.ring.head - 1 - stream.targets(self._window(), rows)

    def recipe(self) -> dict[str, Any]:
        """Return the kernel's constants."""
        return {"KIND": Kind.RECENCY, "BURST": self.sampler.burst, "LEAST": self.sampler.least}

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:  # noqa: ARG002
        """Return 1/c for the newest c steps."""
        window = self._window()
        near = self.ring.stored(ids) & (self.ring.head - 1 - ids < window)
        return near.to(self.real) / window

    def finish(self) -> None:
        """Note that a batch was drawn."""
        self.call.copy_(self.call % self.sampler.burst + 1)


class GeometricDraws(Draws):
    """`Geometric`: the age is found by the inverse of its distribution function, in float64."""

    sampler: Geometric

    def __init__(self, sampler: Geometric, ring: StepRing, real: torch.dtype, triton: bool) -> None:
        super().__init__(sampler, ring, real, triton)
        q = torch.tensor(1.0 / (1.0 + sampler.expected_age), dtype=torch.float64).clamp(max=1.0 - 2.0**-53)
        self._log_kept = float(log2_1p(-q))

    def ids(self, stream: RandomStream, rows: int) -> Tensor:
        """Return drawn ids."""
        size = self.ring.size
        high, low = stream.numbers(rows)
        uniform = ((high << 20) + (low >> 12) + 0.5).to(self.real) * 2.0**-52
        age = (log2_1p(uniform * exp2_m1(size.to(self.real) * self._log_kept)) / self._log_kept).to(torch.int64)
        return self.ring.head - 1 - torch.minimum(age, size - 1)

    def recipe(self) -> dict[str, Any]:
        """Return the kernel's constants."""
        return {"KIND": Kind.GEOMETRIC, "LOG_KEPT": self._log_kept}

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:  # noqa: ARG002
        """Return q(1 − q)^age / (1 − (1 − q)^N)."""
        age, stored = (self.ring.head - 1 - ids).to(self.real), self.ring.stored(ids)
        log_kept = torch.full_like(age, self._log_kept)
        scale = exp2_m1(log_kept) / exp2_m1(self.ring.size.to(self.real) * log_kept)
        return torch.where(stored, scale * exp2(age * log_kept), 0.0)


class ProportionalDraws(Draws):
    """`Prioritized`, `ReLo` and `LAP`: draws in proportion to integer leaves, by slot."""

    sampler: Prioritized | LAP
    tree: PriorityTree
    largest_ever: Tensor
    numbers: Tensor

    def __init__(self, sampler: Prioritized | LAP, ring: StepRing, real: torch.dtype, triton: bool) -> None:
        super().__init__(sampler, ring, real, triton)
        device = ring.head.device
        self.tree = PriorityTree(ring.capacity, device, sampler.new_steps != "largest_ever")
        self.most = largest_leaf(ring.capacity)
        self.register_buffer("largest_ever", torch.full_like(ring.head, ONE), persistent=False)
        numbers = torch.tensor([sampler.alpha, getattr(sampler, "epsilon", 0.0)], dtype=real)
        self.register_buffer("numbers", numbers.to(device), persistent=False)

    def choose(self, stream: RandomStream, rows: int) -> Drawn:
        """Return drawn steps."""
        ring, config = self.ring, self.recipe()
        how = (rows, ring.capacity, config["STRATIFIED"], ring.sides is not None)
        ids, leaves, live = draw_leaves(self.tree.sums, stream, ring.head, ring.tail, *how)
        if ids.device.type == "cpu" and not is_compiling() and not live:  # on a GPU, this would wait
            raise EmptyBufferError(
                "every stored step has priority 0, so none can be drawn; give at least one a positive priority with "
                "update_priorities"
            )
        return Drawn(
            ids, *weigh_leaves(leaves, live, ring.size, self.scheduled, config["WEIGHTED"], config["BY_BATCH"])
        )

    def recipe(self) -> dict[str, Any]:
        """Return the kernel's constants."""
        return {
            "KIND": Kind.PROPORTIONAL,
            "STRATIFIED": getattr(self.sampler, "stratified", True),
            "WEIGHTED": isinstance(self.sampler, Prioritized),
            "BY_BATCH": getattr(self.sampler, "normalize", "batch") != "none",
        }

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:  # noqa: ARG002
        """Return leaf / Σ leaf."""
        ring = self.ring
        leaves = torch.where(ring.stored(ids), self.tree.sums[ids % ring.capacity], 0)
        live = live_leaves(self.tree.sums, ring.head, ring.tail, ring.capacity, ring.sides is not None)[1]
        return leaves.to(self.real) / live.clamp(min=1)

    def load(self, leaves: Tensor, largest_ever: Tensor) -> None:
        """Replace all leaves (C,), and the largest there ever was, ()."""
        self.tree.load(leaves.to(self.ring.head.device))
        self.largest_ever.copy_(largest_ever)

    def update(self, ids: Tensor, values: Tensor, priorities: bool, counts: Tensor) -> Tensor:
        """Apply feedback; for equal ids, the last value counts."""
        if not 0 < len(ids) <= MOST_UPDATES:
            parts = [slice(start, start + MOST_UPDATES) for start in range(0, len(ids), MOST_UPDATES)]
            applied = [self.update(ids[part], values[part], priorities, counts) for part in parts]
            return torch.stack([torch.zeros_like(self.ring.head), *applied]).sum()
        tree, ring, kind = self.tree, self.ring, feedback_kind(self.sampler, priorities)
        launch = self._launchers.get(kind)
        if launch is None or is_compiling():
            changed = (tree.sums, tree.peaks, tree.waiting, tree.tickets, tree.updates, self.largest_ever, tree.tally)
            tensors = TreeTensors(*changed, counts, self.numbers, ring.head, ring.tail)
            if not self.triton or is_compiling():
                how = (kind, self.most, ring.capacity, self.triton)
                stored: Tensor = update_leaves(list(tensors[:CHANGED]), list(tensors[CHANGED:]), ids, values, *how)
                return stored
            launch = self._launchers[kind] = FeedbackLaunches(tensors, kind, self.most, ring.capacity)
        return launch(ids, values)


def draws_of(sampler: Sampler, ring: StepRing, real: torch.dtype, triton: bool) -> Draws:
    """Return the draws for a sampler, with or without Triton's kernels."""
    kinds: dict[type[Sampler], type[Draws]] = dict.fromkeys((Prioritized, ReLo, LAP), ProportionalDraws)
    kinds |= {Uniform: UniformDraws, Combined: CombinedDraws, Recency: RecencyDraws, Geometric: GeometricDraws}
    return kinds[type(sampler)](sampler, ring, real, triton)
