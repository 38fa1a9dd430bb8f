"""Steps as tensors of their fields, stored in a ring with their priorities."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from replaylab.episode_ends import ENDS
from replaylab.replay import Field
from replaylab.torch.drawing.leaf_operators import store_leaves
from replaylab.torch.drawing.samplers import Draws, ProportionalDraws
from replaylab.torch.launching import Launchers
from replaylab.torch.operators import operator
from replaylab.torch.rows.packing import RowPacking
from replaylab.torch.rows.step_ring import StepRing, store_rows
from replaylab.torch.rows.tensors import end_flags
from replaylab.torch.storing.launches import StoreLaunches, field_plan


class StepStorage(nn.Module):
    """Storing of steps, by PyTorch's operations or by kernels of Triton.

    Args:
        ring: The stored steps.
        draws: The draws, with the priorities.
        packings: The fields of the ring's `frames` and of its other rows.
        flat: The fields by path.
        triton: Whether kernels of Triton run.
    """

    def __init__(
        self,
        ring: StepRing,
        draws: Draws,
        packings: tuple[RowPacking, RowPacking],
        flat: Mapping[str, Field],
        triton: bool,
    ) -> None:
        super().__init__()
        self.ring, self.draws, self._packings, self._triton = ring, draws, packings, triton
        self._ends = [name for name in ENDS if name in flat]
        self._launchers, frames = Launchers(), packings[0].columns
        self._following = [] if ring.sides is None else [f"next_{path}" for path in frames]
        self._read = [*frames, *packings[1].columns, *self._following, *self._ends]
        self._most = ring.most_steps * ring.envs
        self._any_complex = any(dtype.is_complex for packing in packings for dtype in packing.dtypes.values())

    def store(self, fields: Mapping[str, Tensor], axes: tuple[int, ...]) -> Tensor:
        r"""Store steps and return their ids.

        Args:
            fields: Every field, (\*axes, \*shape).
            axes: The leading axes: (), (E,), (T,) or (T, E).
        """
        n = math.prod(axes)
        if not n:
            return self.ring.head.new_zeros(axes)
        kernels = self._triton and not is_compiling()
        values = tuple([fields[path].contiguous() for path in self._read]) if kernels else self._packed(fields, n)
        if kernels and self._any_complex:  # Triton has no complex numbers
            values = tuple([torch.view_as_real(value) if value.is_complex() else value for value in values])
        store = (self._launchers.get("store") or self._make_launches()) if kernels else self._operate
        if n <= self._most:
            ids: Tensor = store(values, axes)
            return ids
        rows = [value.view(n, -1) for value in values] if kernels else values
        parts = [tuple([row[start : start + self._most] for row in rows]) for start in range(0, n, self._most)]
        return torch.cat([store(part, (len(part[0]),)) for part in parts]).view(axes)

    def _make_launches(self) -> StoreLaunches:
        plan = field_plan(self._packings, self.ring.sides is not None, self._ends)
        launches = self._launchers["store"] = StoreLaunches(self.ring.tensors, self._tree(), self.ring.envs, plan)
        return launches

    def _packed(self, fields: Mapping[str, Tensor], n: int) -> tuple[Tensor, ...]:
        """Return rows of `frames`, other rows, next observations as rows of `frames` if derived, and flags."""
        frames, rest = self._packings
        rows = {path: value.reshape(n, -1) for path, value in fields.items()}
        packed = [frames.pack(rows, n), rest.pack(rows, n)]
        if self._following:
            packed.append(frames.pack({path: rows[f"next_{path}"] for path in frames.columns}, n))
        return (*packed, end_flags(rows, n, packed[0].device))

    def _operate(self, packed: tuple[Tensor, ...], axes: tuple[int, ...]) -> Tensor:
        ids: Tensor = store_steps(list(self.ring.tensors), self._tree(), list(packed), self.ring.envs, self._triton)
        return ids.view(axes)

    def _tree(self) -> list[Tensor]:
        draws = self.draws
        return [draws.tree.sums, draws.tree.peaks, draws.largest_ever] if isinstance(draws, ProportionalDraws) else []


@operator("store_steps(Tensor(a!)[] ring, Tensor(b!)[] tree, Tensor[] rows, int envs, bool triton) -> Tensor")
def store_steps(ring: list[Tensor], tree: list[Tensor], rows: list[Tensor], envs: int, triton: bool) -> Tensor:
    """Store at most `StepRing.most_steps` steps of each environment and return their ids, (n,).

    Args:
        ring: `StepRing.tensors`.
        tree: The sums and peaks of priorities and the largest there ever was; empty: there are none.
        rows: int32 (n, width) of `frames` and of the other rows; if they are derived, next observations as rows of
            `frames`; and flags, uint8 (n,).
        envs: E.
        triton: Whether kernels of Triton run.
    """
    if triton:
        packings = [RowPacking({"": row.shape[1:]}, {"": torch.int32}, {}) for row in rows[:2]]
        plan = field_plan(packings, len(rows) == 4, ENDS[:1])
        return StoreLaunches(ring, tree, envs, plan)(tuple(rows), (len(rows[0]),)).clone()
    ids = store_rows(ring, rows, envs)
    if tree:
        store_leaves(tree, ring[5], len(ids), len(ring[2]))
    return ids
