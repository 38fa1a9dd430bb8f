"""Batches from ids on a device: stored words, n-step returns, frame stacks and derived next observations."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from replaylab.episode_ends import ENDS
from replaylab.torch.options import DeviceOptions
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED, RowPacking, copied
from replaylab.torch.rows.step_ring import StepRing

DRAWN, LAST, FRAME, NEXT = range(4)
"""Sources of a column: the drawn step's row, the row of the last step that is taken together with it, the drawn
step's frame, or the frame that the last step led to."""


class TakenField(NamedTuple):
    """A column of a batch: its name, and the field it is taken from."""

    name: str
    packing: RowPacking
    path: str
    source: int


class Followed(NamedTuple):
    """The steps that follow drawn ones (B,), within their episodes.

    Attributes:
        total: Σ γ^k·r, 0 if no rewards were asked for.
        discount: γ^steps, 0 if the last step terminated.
        taken: How many steps are taken together, int64.
        last: The id of the last one.
        flags: Its flags.
        following: The row of `StepRing.frames` that holds its next observation.
    """

    total: Tensor
    discount: Tensor
    taken: Tensor
    last: Tensor
    flags: Tensor
    following: Tensor


class Assembly(nn.Module):
    """Assembly of the columns of a batch from ids.

    Args:
        ring: The stored steps.
        packings: The fields of its `frames` and of its other rows.
        options: Options of the replay.
        transformed: Whether to apply the transforms.
        real: The dtype in which returns are summed.

    Attributes:
        taken: The columns that are copied, except stacks.
        stacked: The fields of frames that are stacked.
        powers: γ^k for k = 0 .. K, (K + 1,).
        reward_column: The word of a row that holds the reward, −1: none is summed.
        names: The names of the columns, in order.
    """

    powers: Tensor

    def __init__(
        self,
        ring: StepRing,
        packings: tuple[RowPacking, RowPacking],
        options: DeviceOptions,
        transformed: bool,
        real: torch.dtype,
    ) -> None:
        super().__init__()
        self.ring, self.fields, self.derived = ring, options.config.flat, options.derived
        self.n_step = n_step = options.n_step if transformed else None
        self.stack = options.stack if transformed else None
        self.frames, rest = packings
        self.stacked = (
            [path for path in self.stack.leaves(self.fields) if path in self.frames.columns] if self.stack else []
        )
        self.taken = [
            TakenField(path, rest, path, DRAWN if n_step is None or not n_step.takes_last(path) else LAST)
            for path in rest.columns
            if n_step is None or path != "reward"
        ]
        self.taken += [TakenField(p, self.frames, p, FRAME) for p in self.frames.columns if p not in self.stacked]
        if self.derived:
            after = [path for path in self.frames.columns if f"next_{path}" in self.fields]
            self.taken += [TakenField(f"next_{path}", self.frames, path, NEXT) for path in after]
        powers = [1.0, 1.0] if n_step is None else [n_step.gamma**k for k in range(n_step.steps + 1)]
        self.register_buffer("powers", torch.tensor(powers, dtype=real).to(ring.head.device), persistent=False)
        self.reward_column = -1 if n_step is None else rest.columns["reward"].start
        self.names = list(self.fields) + ([] if n_step is None else ["discount", "n_steps"])

    def columns(self, ids: Tensor) -> dict[str, Tensor]:
        r"""Return flat columns (B, \*shape) of stored steps, int64 (B,), as a transformed batch has them.

        An id of −1, where no step could be drawn, has the values of the oldest step.
        """
        ring, ids = self.ring, torch.maximum(ids, self.ring.tail)
        followed = self._follow(ids)
        slots = ids % ring.capacity
        at = {DRAWN: slots, LAST: followed.last % ring.capacity, FRAME: slots, NEXT: followed.following}
        rows = {
            source: (ring.rest if source in (DRAWN, LAST) else ring.frames)[at[source]]
            for source in {field.source for field in self.taken}
        }
        columns = {
            field.name: field.packing.unpack(
                field.path, copied(rows[field.source][:, field.packing.columns[field.path]]), len(ids)
            )
            for field in self.taken
        }
        columns |= zip(ENDS, (followed.flags & flag != 0 for flag in (TERMINATED, TRUNCATED)), strict=True)
        if self.n_step is not None:
            columns["reward"], columns["discount"] = followed.total.float(), followed.discount.float()
            columns["n_steps"] = followed.taken
        if self.stack is not None:
            self._add_stacks(columns, ids, followed.last)
        return {name: columns[name] for name in self.names}

    def _follow(self, ids: Tensor) -> Followed:
        ring, steps_taken = self.ring, len(self.powers) - 1
        steps = ids[:, None] + ring.envs * torch.arange(steps_taken, device=ids.device)
        taken = leading((steps[:, 1:] < ring.head) & ~ring.ended(steps[:, :-1]))
        count = taken.sum(1)
        last = ids + (count - 1) * ring.envs
        total = torch.zeros_like(ids, dtype=self.powers.dtype)
        if self.reward_column >= 0:
            rewards = ring.rest[steps % ring.capacity, self.reward_column].view(torch.float32).to(self.powers.dtype)
            for k in range(steps_taken):
                total = total + torch.where(taken[:, k], self.powers[k] * rewards[:, k], 0.0)
        slots = last % ring.capacity
        last_flags = ring.flags[slots]
        terminated = last_flags & TERMINATED != 0
        following = slots
        if self.derived:
            place, after = ring.side[slots], last + ring.envs
            following = torch.where(after < ring.head, after % ring.capacity, ring.capacity + last % ring.envs)
            following = torch.where(place >= 0, ring.capacity + ring.envs + place, following)
            following = torch.where(terminated, slots, following)
        discount = torch.where(terminated, 0.0, self.powers[count])
        return Followed(total, discount, count, last, last_flags, following)

    def _add_stacks(self, columns: dict[str, Tensor], ids: Tensor, last: Tensor) -> None:
        """Stack fields of `frames`, and their next values."""
        columns |= self._stacks(ids, self.stacked)
        nexts = [path for path in self.stacked if f"next_{path}" in columns]
        for path, older in self._stacks(last, nexts).items():
            newest = columns[f"next_{path}"]
            columns[f"next_{path}"] = torch.cat((older[:, 1:], newest[:, None]), 1)

    def _stacks(self, ids: Tensor, paths: list[str]) -> dict[str, Tensor]:
        r"""Return stacked fields of `frames`, (B, k, \*shape)."""
        assert self.stack is not None
        if not paths:
            return {}
        steps, shown = self._steps_back(ids)
        rows = self.ring.frames.index_select(0, steps.flatten() % self.ring.capacity)
        result = {}
        for path in paths:
            words = copied(rows[:, self.frames.columns[path]])
            value = self.frames.unpack(path, words, len(words))
            frames = value.view(*steps.shape, *value.shape[1:])
            if self.stack.padding == "zero":
                shown_frames = shown.view(*shown.shape, *[1] * (frames.ndim - 2))
                frames = torch.where(shown_frames, frames, torch.zeros_like(frames))
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


def leading(follows: Tensor) -> Tensor:
    """Return bool (B, K): True, and then whether all of `follows` (B, K − 1) up to there are."""
    first = follows.new_ones((len(follows), 1))
    return torch.cat((first, follows), 1).to(torch.int64).cumprod(1) != 0
