"""Launches of the kernels that store steps."""

import torch
from torch import Tensor

from replaylab.torch.launching import Launcher

ROWS, WORDS = 16, 64
"""Rows and words that a program copies at a time."""


class StoreLaunches:
    """See `step_ring.store_steps`, of whose arguments these are the ring's.

    Args:
        tables: frames, rest and flags.
        side: The ring's tensor of this name.
        owners: See `side`.
        counters: head, tail and closings.
        envs: E.
        sides: S, 0 if next observations are stored.
    """

    def __init__(
        self,
        tables: tuple[Tensor, Tensor, Tensor],
        side: Tensor,
        owners: Tensor,
        counters: tuple[Tensor, Tensor, Tensor],
        envs: int,
        sides: int,
    ) -> None:
        from replaylab.torch.rows import kernels

        (frames, rest, flags), (head, tail, closings) = tables, counters
        self._frames, self._head, self._capacity, self._envs, self._sides = frames, head, len(flags), envs, sides
        frame_width, width, size = frames.shape[1], rest.shape[1], {"SIZE": ROWS, "WORDS": WORDS, "num_warps": 4}
        ring = {"CAPACITY": len(flags), "ENVS": envs}
        self._apart = Launcher(kernels.apart_kernel, (flags, head, tail), {**ring, "WIDTH": frame_width, **size})
        widths = {"SIDES": max(sides, 1), "FRAME_WIDTH": frame_width, "WIDTH": width, "DERIVED": sides > 0}
        written = (frames, rest, flags, side, owners, head, closings)
        self._store = Launcher(kernels.store_kernel, written, {**ring, **widths, **size})
        closed = {**ring, "DERIVED": sides > 0, "SIZE": 128, "num_warps": 4}
        self._close = Launcher(kernels.close_kernel, (head, tail, closings), closed)

    def __call__(self, new_frames: Tensor, new_rest: Tensor, new_flags: Tensor, following: Tensor | None) -> Tensor:
        """Store steps and return their ids."""
        n, derived, parts = len(new_flags), following is not None, -(-len(new_flags) // ROWS)
        new = [
            self._head if rows is None else rows.contiguous() for rows in (new_frames, new_rest, new_flags, following)
        ]
        block = torch.empty(n + 2 * parts, dtype=torch.int64, device=self._head.device)
        ids, counted, lost = block[:n], block[n : n + parts], block[n + parts :]
        led_to, apart = self._frames, ids
        if derived:
            led_to = self._frames[self._capacity : self._capacity + self._envs]
            if n > self._envs:  # they are overwritten by the last ones while the first ones are read
                led_to = led_to.clone()
            apart = torch.empty(n, dtype=torch.int32, device=ids.device)
            compared = (led_to, new[0], new[2], new[3], apart, counted)
            self._apart((parts, 1, 1), _key(*compared), *compared, n)
        stored = (led_to, *new, apart, counted, lost, ids)
        self._store((parts, 1, 1), _key(*stored), *stored, n)
        closed = (counted, lost)
        self._close((1, 1, 1), _key(*closed), *closed, parts, n)
        return ids


def _key(*tensors: Tensor) -> tuple[int, ...]:
    """Return what a compiled kernel depends on: the alignment of addresses."""
    return tuple(tensor.data_ptr() % 16 for tensor in tensors)
