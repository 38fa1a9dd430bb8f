"""Transforms of drawn steps on a device: n-step returns, frame stacks and derived next observations."""

import torch
from torch import Tensor, nn

from replaylab.torch.options import ENDS, DeviceOptions
from replaylab.torch.rows.gathering import DRAWN, FRAME, LAST, NEXT, RowGather, TakenField, leading
from replaylab.torch.rows.packing import RowPacking
from replaylab.torch.rows.step_ring import StepRing


class Assembly(nn.Module):
    """Assembly of the columns of a batch from ids.

    Args:
        ring: The stored steps.
        packings: The fields of its `frames` and of its other rows.
        options: Options of the replay.
        transformed: Whether to apply the transforms.
        real: The dtype in which returns are summed.
        triton: Whether kernels of Triton run.
    """

    def __init__(
        self,
        ring: StepRing,
        packings: tuple[RowPacking, RowPacking],
        options: DeviceOptions,
        transformed: bool,
        real: torch.dtype,
        triton: bool,
    ) -> None:
        super().__init__()
        self.ring, self.fields, self.derived = ring, options.config.flat, options.derived
        self.n_step = n_step = options.n_step if transformed else None
        self.stack = options.stack if transformed else None
        self.frames, rest = packings
        self.stacked = (
            [path for path in self.stack.leaves(self.fields) if path in self.frames.columns] if self.stack else []
        )
        taken = [
            TakenField(path, rest, path, DRAWN if n_step is None or not n_step.takes_last(path) else LAST)
            for path in rest.columns
            if n_step is None or path != "reward"
        ]
        if self.stack is None:
            taken += [TakenField(path, self.frames, path, FRAME) for path in self.frames.columns]
        if self.derived:
            after = [path for path in self.frames.columns if f"next_{path}" in self.fields]
            taken += [TakenField(f"next_{path}", self.frames, path, NEXT) for path in after]
        powers = [1.0, 1.0] if n_step is None else [n_step.gamma**k for k in range(n_step.steps + 1)]
        reward_column = -1 if n_step is None else rest.columns["reward"].start
        self.gather = RowGather(ring, taken, torch.tensor(powers, dtype=real), reward_column, triton)
        self.names = list(self.fields) + ([] if n_step is None else ["discount", "n_steps"])

    def columns(self, ids: Tensor) -> dict[str, Tensor]:
        r"""Return flat columns (B, \*shape) of stored steps, int64 (B,), as a transformed batch has them.

        An id of −1, where no step could be drawn, has the values of step 0's slot.
        """
        columns, returns, ends, places = self.gather(ids)
        columns |= zip(ENDS, ends.unbind(0), strict=True)
        if self.n_step is not None:
            columns["reward"], columns["discount"] = returns.unbind(0)
            columns["n_steps"] = places[0]
        if self.stack is not None:
            self._add_stacks(columns, ids, places[1])
        return {name: columns[name] for name in self.names}

    def _add_stacks(self, columns: dict[str, Tensor], ids: Tensor, last: Tensor) -> None:
        """Add the fields of `frames`, and stack their next values."""
        columns |= self._frames(ids.clamp(min=0), list(self.frames.columns))
        nexts = [path for path in self.stacked if f"next_{path}" in columns]
        for path, older in self._frames(last, nexts).items():
            newest = columns[f"next_{path}"]
            columns[f"next_{path}"] = torch.cat((older[:, 1:], newest[:, None]), 1)

    def _frames(self, ids: Tensor, paths: list[str]) -> dict[str, Tensor]:
        r"""Return fields of `frames`, (B, k, \*shape) where they are stacked."""
        assert self.stack is not None
        if not paths:
            return {}
        steps, shown = self._steps_back(ids)
        rows = self.ring.frames.index_select(0, steps.flatten() % self.ring.capacity)
        result = {}
        for path in paths:
            words = rows[:, self.frames.columns[path]].contiguous()
            value = self.frames.unpack(path, words, len(words))
            frames = value.view(*steps.shape, *value.shape[1:])
            if path not in self.stacked:
                result[path] = frames[:, -1]
            elif self.stack.padding == "zero":
                shown_frames = shown.view(*shown.shape, *[1] * (frames.ndim - 2))
                result[path] = torch.where(shown_frames, frames, torch.zeros_like(frames))
            else:
                result[path] = frames
        return result

    def _steps_back(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last k steps of the episode up to each one (B, k), oldest first, and which are not padding.

        Padding repeats the oldest step of the episode that is stored.
        """
        assert self.stack is not None
        ring, back = self.ring, torch.arange(self.stack.length, device=ids.device)
        steps = ids[:, None] - ring.envs * back
        shown = leading((steps[:, 1:] >= ring.tail) & ~ring.ended(steps[:, 1:]))
        oldest = shown.sum(1, keepdim=True) - 1
        steps = ids[:, None] - ring.envs * torch.minimum(back, oldest)
        return steps.flip(1), shown.flip(1)
