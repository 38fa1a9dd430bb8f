"""Batches from ids on a device: stored words, n-step returns, frame stacks and derived next observations."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from replaylab.episode_ends import ENDS
from replaylab.torch.operators import operator
from replaylab.torch.options import DeviceOptions
from replaylab.torch.rows.packing import TERMINATED, TRUNCATED, RowPacking
from replaylab.torch.rows.step_ring import StepRing

MOST_UNROLLED = 16
"""Largest n of n-step returns in a kernel; longer returns are computed without one."""


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


DRAWN, LAST, FRAME, NEXT = range(4)
"""Sources of a column: the drawn step's row, the row of the last step that is taken together with it, the drawn
step's frame, or the frame that the last step led to."""


class TakenField(NamedTuple):
    """A column of a batch: its name, and the field it is taken from."""

    name: str
    packing: RowPacking
    path: str
    source: int


class Gathered(NamedTuple):
    """Gathered values of drawn steps (B,).

    Attributes:
        columns: The fields, by name.
        returns: Σ γ^k·r, 0 if no rewards were asked for; and γ^steps, 0 if the last step terminated; float32 (2, B).
        ends: Whether the last step terminated, and whether it was truncated, bool (2, B).
        places: How many steps are taken together, the id of the last one, and the row of `StepRing.frames` that holds
            its next observation, int64 (3, B).
    """

    columns: dict[str, Tensor]
    returns: Tensor
    ends: Tensor
    places: Tensor


class RowGather(nn.Module):
    """Copies fields of stored rows, each into a contiguous column, together with what follows the steps.

    Args:
        ring: The steps.
        fields: The fields to copy.
        powers: γ^k for k = 0 .. K, (K + 1,).
        column: The column of rewards in the rows, −1: none.
        triton: Whether kernels of Triton run.
    """

    plan: Tensor
    powers: Tensor

    def __init__(self, ring: StepRing, fields: Sequence[TakenField], powers: Tensor, column: int, triton: bool) -> None:
        super().__init__()
        self.ring, self.column, self.triton = ring, column, triton and len(powers) - 1 <= MOST_UNROLLED
        # Columns of large dtypes come first, so that each begins where its dtype may.
        self.fields = sorted(fields, key=lambda field: -field.packing.stored[field.path].itemsize)
        slices = [field.packing.columns[field.path] for field in self.fields]
        self.sources = [field.source for field in self.fields]
        self.starts, self.ends = [words.start for words in slices], [words.stop for words in slices]
        self.lengths = [end - start for start, end in zip(self.starts, self.ends, strict=True)]
        words, first = [], 0
        for source, start, end in zip(self.sources, self.starts, self.ends, strict=True):
            words += [(source, word, first, end - start, word - start) for word in range(start, end)]
            first += end - start
        device = ring.head.device
        plan = torch.tensor(words, dtype=torch.int64).reshape(-1, 5).T.contiguous().to(device)
        self.register_buffer("plan", plan, persistent=False)
        self.register_buffer("powers", powers.to(device), persistent=False)

    def forward(self, ids: Tensor) -> Gathered:
        """Return the gathered values of stored steps, int64 (B,), or −1 for no step."""
        ring, rows = self.ring, len(ids)
        tables = (ring.frames, ring.rest, ring.flags, ring.side, ring.head)
        how = (self.sources, self.starts, self.ends, self.column, ring.envs, self.triton)
        words, *rest = gather_rows(*tables, ids, self.powers, self.plan, *how)
        parts = words.split([length * rows for length in self.lengths])
        columns = {
            field.name: field.packing.unpack(field.path, part, rows)
            for field, part in zip(self.fields, parts, strict=True)
        }
        return Gathered(columns, *rest)


@operator(
    "gather_rows(Tensor frames, Tensor rest, Tensor flags, Tensor side, Tensor head, Tensor ids, Tensor powers, "
    "Tensor plan, int[] sources, int[] starts, int[] ends, int column, int envs, bool triton) -> "
    "(Tensor, Tensor, Tensor, Tensor)"
)
def gather_rows(
    frames: Tensor,
    rest: Tensor,
    flags: Tensor,
    side: Tensor,
    head: Tensor,
    ids: Tensor,
    powers: Tensor,
    plan: Tensor,
    sources: list[int],
    starts: list[int],
    ends: list[int],
    column: int,
    envs: int,
    triton: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return words of rows, field after field, int32 (B·words,), and the members of `Gathered` behind the columns.

    Args:
        frames: The ring's tensor of this name; so are the next four.
        rest: See `frames`.
        flags: See `frames`.
        side: See `frames`.
        head: See `frames`.
        ids: int64 (B,); of −1, where no step could be drawn, the values of step 0's slot are returned.
        powers: See `RowGather`.
        plan: For each word that is taken: its source, its place in the row, the number of words in the previous fields
            and in its field, and its place in the field, int64 (5, words).
        sources: The source of each field.
        starts: The first word of each field in its row.
        ends: The end of each field.
        column: See `RowGather`.
        envs: E.
        triton: Whether kernels of Triton run.
    """
    if triton:
        from replaylab.torch.rows import kernels

        gathered: tuple[Tensor, Tensor, Tensor, Tensor]
        gathered = kernels.gather((frames, rest), (flags, side, head), ids, powers, plan, column, envs)
        return gathered
    ids = ids.clamp(min=0)
    returns, last_flags, places = _follow(flags, side, rest, head, ids, powers, column, envs)
    ending = torch.stack((last_flags & TERMINATED != 0, last_flags & TRUNCATED != 0))
    capacity = len(flags)
    at = {DRAWN: ids % capacity, LAST: places[1] % capacity, FRAME: ids % capacity, NEXT: places[2]}
    tables = {source: (rest if source in (DRAWN, LAST) else frames)[at[source]] for source in set(sources)}
    parts = [tables[source][:, start:end].flatten() for source, start, end in zip(sources, starts, ends, strict=True)]
    return torch.cat(parts) if parts else rest.new_empty(0), returns, ending, places


def _follow(
    flags: Tensor, side: Tensor, rest: Tensor, head: Tensor, ids: Tensor, powers: Tensor, column: int, envs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return returns and places as in `Gathered`, and the flags of the last steps."""
    capacity, steps_taken = len(flags), len(powers) - 1
    steps = ids[:, None] + envs * torch.arange(steps_taken, device=ids.device)
    ended = flags[steps % capacity] != 0
    taken = leading((steps[:, 1:] < head) & ~ended[:, :-1])
    count = taken.sum(1)
    last = ids + (count - 1) * envs
    total = torch.zeros_like(ids, dtype=powers.dtype)
    if column >= 0:
        rewards = rest[steps % capacity, column].view(torch.float32).to(powers.dtype)
        for k in range(steps_taken):
            total = total + torch.where(taken[:, k], powers[k] * rewards[:, k], 0.0)
    slots = last % capacity
    last_flags = flags[slots]
    terminated = last_flags & TERMINATED != 0
    discount = torch.where(terminated, 0.0, powers[count])
    rows = slots
    if len(side):
        place, after = side[slots], last + envs
        rows = torch.where(after < head, after % capacity, capacity + last % envs)
        rows = torch.where(place >= 0, capacity + envs + place, rows)
        rows = torch.where(terminated, slots, rows)
    return torch.stack((total, discount)).to(torch.float32), last_flags, torch.stack((count, last, rows))


def leading(follows: Tensor) -> Tensor:
    """Return bool (B, K): True, and then whether all of `follows` (B, K − 1) up to there are."""
    first = follows.new_ones((len(follows), 1))
    return torch.cat((first, follows), 1).to(torch.int64).cumprod(1) != 0
