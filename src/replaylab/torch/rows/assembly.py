"""What drawn steps become on a device: n-step returns, frame stacks and derived next observations."""

import torch
from torch import Tensor, nn

from replaylab.torch.options import ENDS, DeviceOptions
from replaylab.torch.rows.following import Followed, follow, leading
from replaylab.torch.rows.gathering import FieldGather
from replaylab.torch.rows.packing import RowPacking
from replaylab.torch.rows.step_ring import TERMINATED, TRUNCATED, StepRing

BITS = {"terminated": TERMINATED, "truncated": TRUNCATED}


class Assembly(nn.Module):
    """Turns ids into the columns of a batch.

    Args:
        ring: Where the steps are.
        packings: The fields of its `frames` and of its other rows.
        options: Those of the replay.
        transformed: Whether to apply the transforms.
        real: The dtype in which returns are summed.
        triton: Whether kernels of Triton run.
    """

    powers: Tensor

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
        self.ring, self.fields, self.derived, self.triton = ring, options.config.flat, options.derived, triton
        self.n_step = n_step = options.n_step if transformed else None
        self.stack = options.stack if transformed else None
        leaves = self.stack.leaves(self.fields) if self.stack is not None else []
        self.stacked = [path for path in leaves if path in packings[0].columns]
        of_last = [path for path in packings[1].columns if n_step is not None and n_step.takes_last(path)]
        of_drawn = [path for path in packings[1].columns if path not in of_last]
        framed = list(packings[0].columns)
        after = [path for path in framed if f"next_{path}" in self.fields]
        self.of_last, self.of_drawn, self.framed, self.after, self.older = (
            FieldGather(packing, paths, ring.head.device, triton)
            for packing, paths in (
                (packings[1], of_last),
                (packings[1], of_drawn),
                (packings[0], framed),
                (packings[0], after),
                (packings[0], [path for path in after if path in self.stacked]),
            )
        )
        powers = [1.0, 1.0] if n_step is None else [n_step.gamma**k for k in range(n_step.steps + 1)]
        self.register_buffer("powers", torch.tensor(powers, dtype=real).to(ring.head.device), persistent=False)
        self.reward_column = -1 if n_step is None else packings[1].columns["reward"].start

    def columns(self, ids: Tensor) -> dict[str, Tensor]:
        r"""Return flat columns (B, \*shape) of stored steps, int64 (B,), as a transformed batch has them."""
        ring = self.ring
        followed = follow(ring, ids, self.powers, self.reward_column, self.triton)
        columns = self.of_drawn.columns(ring.rest, ids, ring.capacity)
        columns |= self.of_last.columns(ring.rest, followed.last, ring.capacity)
        columns |= {name: followed.flags & BITS[name] != 0 for name in ENDS if name in self.fields}
        names = list(self.fields)
        if self.n_step is not None:
            columns |= {"reward": followed.reward, "discount": followed.discount, "n_steps": followed.steps}
            names += ["discount", "n_steps"]
        columns |= self._observations(ids, followed, columns)
        return {name: columns[name] for name in names}

    def _observations(self, ids: Tensor, followed: Followed, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the columns of the fields in `frames`, and their next ones."""
        ring = self.ring
        result = self._frames(ids, self.framed)
        nexts = {path: columns[f"next_{path}"] for path in self.after.paths if f"next_{path}" in columns}
        if self.derived:
            nexts = self.after.columns(ring.frames, followed.next_rows, len(ring.frames))
        older = self._frames(followed.last, self.older)
        for path in self.after.paths:
            value = nexts[path]
            if path in older:
                value = torch.cat((older[path][:, 1:], value[:, None]), 1)
            result[f"next_{path}"] = value
        return result

    def _frames(self, ids: Tensor, gather: FieldGather) -> dict[str, Tensor]:
        r"""Return fields of `frames`, (B, k, \*shape) where they are stacked."""
        ring = self.ring
        if self.stack is None or not gather.paths:
            return gather.columns(ring.frames, ids, ring.capacity)
        steps, shown = self._steps_back(ids)
        result = {}
        for path, value in gather.columns(ring.frames, steps.flatten(), ring.capacity).items():
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
