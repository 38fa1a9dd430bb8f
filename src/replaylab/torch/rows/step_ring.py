"""The steps on a device: a time-major ring of rows, ids and episode ends."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from replaylab.errors import OverSizeError
from replaylab.machine import machine_memory, size_text
from replaylab.torch.captured import capturing
from replaylab.torch.options import DeviceOptions
from replaylab.torch.rows.packing import LEFT, TERMINATED, RowPacking

PRIORITY_NBYTES = 17
"""Bytes of a step's leaf, ticket and share of the nodes above."""


Columns = list[tuple[slice, Tensor]]
"""Words (n, width) for some columns of rows."""


class StepRing(nn.Module):
    """Steps by slot: id i is in slot i mod C, and id i + E is the next step of its environment.

    Ids from `tail` to `head` − 1 are stored. `frames` holds observations that other steps look at: C slots; then,
    where next observations are derived, the E newest next observations; then the side ring of those that are not the
    next row's observation (truncations); then one row that nobody reads, where masked writes go.

    Args:
        capacity: C, a multiple of E.
        envs: E.
        frames: The fields that `frames` holds.
        rest: The fields of the other rows.
        sides: S, rows of the side ring, at least E; None: next observations are stored with their step.
        device: Device of the ring.

    Attributes:
        tally: For kernels, between two launches; 0 otherwise.
    """

    frames: Tensor
    rest: Tensor
    flags: Tensor
    side: Tensor
    owners: Tensor
    head: Tensor
    tail: Tensor
    closings: Tensor
    tally: Tensor

    def __init__(
        self, capacity: int, envs: int, frames: RowPacking, rest: RowPacking, sides: int | None, device: torch.device
    ) -> None:
        super().__init__()
        self.capacity, self.envs, self.sides = capacity, envs, sides
        extra = 0 if sides is None else envs + sides + 1

        def buffer(name: str, *shape: int, fill: int = 0, dtype: torch.dtype = torch.int64) -> None:
            self.register_buffer(name, torch.full(shape, fill, dtype=dtype, device=device), persistent=False)

        buffer("frames", capacity + extra, frames.width, dtype=torch.int32)
        buffer("rest", capacity, rest.width, dtype=torch.int32)
        buffer("flags", capacity, dtype=torch.uint8)
        buffer("side", capacity if sides is not None else 0, fill=-1, dtype=torch.int32)
        buffer("owners", 0 if sides is None else sides + 1, fill=-1)
        for name in ("head", "tail", "closings"):
            buffer(name)
        buffer("tally", 3)

    @property
    def tensors(self) -> list[Tensor]:
        """All of them, as `store_rows` takes them."""
        tables = (self.frames, self.rest, self.flags, self.side, self.owners)
        return [*tables, self.head, self.tail, self.closings, self.tally]

    @property
    def size(self) -> Tensor:
        """N, ()."""
        return self.head - self.tail

    def stored(self, ids: Tensor) -> Tensor:
        """Return whether each step is stored."""
        return (ids >= self.tail) & (ids < self.head)

    def ended(self, ids: Tensor) -> Tensor:
        """Return whether the episode ends with each step, for any reason."""
        return self.flags[ids % self.capacity] != 0

    def write(self, ids: Tensor, frames: Columns, rest: Columns) -> Tensor:
        """Write words (n, width) of some columns of `frames` and `rest` for steps (n,); return which are stored, (n,).

        Of equal ids the last one counts. All rows of a slot write the same words, so their order does not matter.
        """
        slots, stored = ids % self.capacity, self.stored(ids)
        keys, order = (2 * slots + stored).sort(stable=True)  # of each slot, the last stored id comes last
        last = order[torch.searchsorted(keys, 2 * slots + 1, right=True) - 1]
        for rows, written in ((self.frames, frames), (self.rest, rest)):
            for columns, words in written:
                rows[slots, columns] = torch.where(stored[last, None], words[last], rows[slots, columns])
        return stored

    @property
    def most_steps(self) -> int:
        """Largest number of time steps in one call of `store_rows`."""
        return min(self.capacity, self.capacity if self.sides is None else self.sides) // self.envs

    def end_episode(self, where: Tensor) -> None:
        """Record that the next step of these environments, bool (E,), begins another episode."""
        newest = (self.head - self.envs + torch.arange(self.envs, device=where.device)) % self.capacity
        self.flags.index_copy_(0, newest, self.flags[newest] | (where.to(torch.uint8) * LEFT))


def store_rows(ring: list[Tensor], rows: list[Tensor], envs: int) -> Tensor:
    """Store steps in the tensors of a ring and return their ids; see `storing.steps.store_steps`."""
    frames, rest, flags, _side, _owners, head, tail, _closings, _tally = ring
    new_frames, new_rest, *following, new_flags = rows
    ids = head + torch.arange(len(new_flags), device=flags.device)
    slots = ids % len(flags)
    first = torch.maximum(tail, ids[-1] + 1 - len(flags))
    if following:
        first = torch.maximum(first, _store_derived(ring, ids, slots, new_frames, new_flags, following[0], envs))
    else:
        frames.index_copy_(0, slots, new_frames)
    rest.index_copy_(0, slots, new_rest)
    flags.index_copy_(0, slots, new_flags)
    tail.copy_(first)
    head.add_(len(new_flags))
    return ids


def _store_derived(
    ring: list[Tensor], ids: Tensor, slots: Tensor, new_frames: Tensor, new_flags: Tensor, following: Tensor, envs: int
) -> Tensor:
    """Store observations, and next observations that are not the next row's; return the first id that is kept.

    A step's next observation is compared with the observation of the environment's next step when that is stored. If
    they differ, and the step did not terminate, it gets a row of the side ring.
    """
    frames, _rest, flags, side, owners, _head, tail, closings, _tally = ring
    capacity, sides = len(flags), len(owners) - 1
    newest = capacity + torch.arange(envs, device=ids.device)
    before = torch.cat((ids[:envs] - envs, ids[:-envs]))  # the step before each in its environment
    led_to = torch.cat((frames[newest], following[:-envs]))
    ends = torch.cat((flags[before[:envs] % capacity], new_flags[:-envs]))
    apart = (led_to != new_frames).any(1) & (ends & TERMINATED == 0) & (before >= tail)
    places = (closings + apart.cumsum(0) - 1) % sides
    last_lost = torch.where(apart, owners[places], -1).amax()  # the owners of rows that are overwritten
    unread = torch.where(apart, places, sides)
    owners.index_copy_(0, unread, before)
    closings.add_(apart.sum())
    rows = torch.cat((slots, newest, capacity + envs + unread))
    frames.index_copy_(0, rows, torch.cat((new_frames, following[-envs:], led_to)))
    indices = torch.where(apart, places, -1).to(torch.int32)
    side.index_copy_(0, before[:envs] % capacity, indices[:envs])
    side.index_copy_(0, slots, torch.cat((indices[envs:], indices.new_full((envs,), -1))))
    frames[-1], owners[-1] = 0, -1  # never read: the order of these writes is not defined
    return (last_lost + envs) // envs * envs


class DropWatch:
    """Warns once if steps are dropped because the side ring is full, without waiting for the device.

    It looks each time that as many steps as the capacity were stored, at numbers that were copied the time before.
    Steps that compiled functions or CUDA graphs store are not counted.

    Args:
        ring: The steps.
        share: Size of the side ring, for the warning.
    """

    def __init__(self, ring: StepRing, share: float) -> None:
        self._ring, self._share = ring, share
        self._left: int | None = ring.capacity  # None: it warned
        self._copied: tuple[Tensor, Any] | None = None

    def __reduce__(self) -> Any:  # events belong to a process
        return DropWatch, (self._ring, self._share)

    def note(self, count: int) -> None:
        """Note that steps were stored."""
        if is_compiling() or self._left is None or capturing(self._ring.head.device):
            return
        self._left -= count
        if self._left <= 0:
            self._left = self._ring.capacity
            self._look()

    def _look(self) -> None:
        event = None
        if self._ring.head.device.type == "cuda":
            pending, event = self._copied, torch.cuda.Event()  # type: ignore[no-untyped-call]
        numbers = torch.stack((self._ring.head, self._ring.tail)).to("cpu", non_blocking=True)
        if event is not None:
            event.record()
            self._copied = numbers, event
            if pending is None or not pending[1].query():
                return
            numbers = pending[0]
        head, tail = numbers.tolist()
        if tail > max(0, head - self._ring.capacity):
            self._left = None
            warnings.warn(
                f"DeviceReplay keeps {head - tail:,} of {self._ring.capacity:,} steps, since its side ring of next "
                f"observations that are not the next step's, as at truncations, is full (final_obs_share={self._share}"
                '); pass a larger `final_obs_share`, up to 1, or next_obs="stored"',
                stacklevel=7,
            )


def _free_memory(device: torch.device) -> int:
    """Return the bytes that a device can still allocate, with those that PyTorch keeps for later allocations."""
    if device.type != "cuda":
        return machine_memory()
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + cached


def checked_ring(options: DeviceOptions, packings: tuple[RowPacking, RowPacking]) -> StepRing:
    """Return an empty ring.

    Args:
        options: Options of the replay.
        packings: The fields of the ring's `frames` and of its other rows.

    Raises:
        OverSizeError: The device has too little memory.
    """
    capacity, envs, sides = options.config.capacity, options.envs, None
    if options.derived:
        sides = max(envs, int(capacity * options.final_obs_share))
    frame = packings[0].width
    row = frame + packings[1].width
    needed = capacity * (4 * row + 5 + PRIORITY_NBYTES * options.config.sampler.keeps_priorities)
    needed += 0 if sides is None else 4 * frame * (options.envs + sides) + 8 * sides
    device = options.device
    available = _free_memory(device)
    if needed > available:
        fitting = int(capacity * available / needed * 0.8) // options.envs * options.envs
        raise OverSizeError(
            f"capacity={capacity:,} needs {size_text(needed)}, but {device} has {size_text(available)}; use a capacity "
            f'of at most {fitting:,}, next_obs="derived", or 16-bit observations (`half`)'
        )
    return StepRing(capacity, envs, *packings, sides, device)
