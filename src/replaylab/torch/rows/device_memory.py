"""Allocation of the ring of a replay, after a check of the device's memory."""

import torch

from replaylab.errors import OverSizeError
from replaylab.machine import machine_memory
from replaylab.replay.data.memory import size_text
from replaylab.torch.options import DeviceOptions
from replaylab.torch.rows.packing import RowPacking
from replaylab.torch.rows.step_ring import StepRing

PRIORITY_NBYTES = 17
"""Bytes of a step's leaf, ticket and share of the nodes above."""


def checked_ring(options: DeviceOptions, packings: tuple[RowPacking, RowPacking], triton: bool) -> StepRing:
    """Return an empty ring.

    Args:
        options: Options of the replay.
        packings: The fields of the ring's `frames` and of its other rows.
        triton: Whether kernels of Triton run.

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
    available = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else machine_memory()
    if needed > available:
        fitting = int(capacity * available / needed * 0.8) // options.envs * options.envs
        raise OverSizeError(
            f"capacity={capacity:,} needs {size_text(needed)}, but {device} has {size_text(available)}; use a capacity "
            f'of at most {fitting:,}, next_obs="derived", or 16-bit observations (`half`)'
        )
    return StepRing(capacity, envs, *packings, sides, device, triton)
