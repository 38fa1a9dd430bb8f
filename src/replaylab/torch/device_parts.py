"""Parts of a `DeviceReplay`: the ring of steps, the draws, and the assembly of batches."""

from typing import Any

import torch
from torch import Tensor, nn

from replaylab.replay import Batch
from replaylab.replay.buffer_layout import BufferLayout
from replaylab.replay.data.batch import checked_out, copy_batch
from replaylab.torch.batches.sampling import MOST_UNROLLED, BatchKernels
from replaylab.torch.drawing.philox import RandomStream
from replaylab.torch.drawing.samplers import draws_of
from replaylab.torch.options import DeviceOptions, kernels_run
from replaylab.torch.rows.assembly import Assembly
from replaylab.torch.rows.packing import packings
from replaylab.torch.rows.step_ring import DropWatch, checked_ring
from replaylab.torch.rows.tensors import feedback_tensors, incoming_steps, written_tensors
from replaylab.torch.storing.steps import StepStorage


class DeviceParts(nn.Module):
    """The parts of a replay.

    Args:
        options: Options of the replay.
        seed: Seed of 64 bits.

    Attributes:
        ring: The stored steps.
        draws: The draws of the sampler.
        storage: Stores steps.
        stream: The random numbers.
        assembly: Assembles batches of drawn steps.
        untransformed: Assembles steps without the transforms.
        scheduled_value: Current value of the sampler's schedule; None before the first draw.
        counts: Rows drawn, feedback whose step was not stored, and feedback that was not valid.
        loop_state: The state of the training loop in the snapshot that was loaded.
    """

    counts: Tensor

    def __init__(self, options: DeviceOptions, seed: int) -> None:
        super().__init__()
        self.options, config = options, options.config
        self.real = torch.float32 if options.device.type == "mps" else torch.float64
        self.packings, triton = packings(options), kernels_run(options)
        self.ring = checked_ring(options, self.packings)
        self.draws = draws_of(config.sampler, self.ring, self.real, triton)
        self.storage = StepStorage(self.ring, self.draws, self.packings, config.flat, triton)
        self.stream = RandomStream(seed, options.device)
        self.layout = BufferLayout(config)
        self.drops = None if self.ring.sides is None else DropWatch(self.ring, options.final_obs_share)
        self.assembly, self.untransformed = (
            Assembly(self.ring, self.packings, options, transformed, self.real) for transformed in (True, False)
        )
        self.scheduled_value: float | None = None
        self.loop_state: dict[str, Any] | None = None
        counts = torch.zeros(3, dtype=torch.int64, device=options.device)
        self.register_buffer("counts", counts, persistent=False)
        self.kernels: BatchKernels | None = None
        stack = options.stack
        if triton and max(len(self.assembly.powers) - 1, stack.length if stack else 0) <= MOST_UNROLLED:
            self.kernels = BatchKernels(self.assembly, self.draws, self.stream, counts)

    def set_scheduled(self, value: float) -> None:
        """Set the value of the sampler's schedule."""
        if value != self.scheduled_value:
            self.scheduled_value = value
            self.draws.scheduled.fill_(value)

    def store(self, call: str, steps: dict[str, Any], final_obs: Any, *, many: bool) -> Tensor:
        """Store steps and return their ids; `call` names the method, for errors."""
        fields, axes = incoming_steps(self.options, call, steps, final_obs, many)
        ids = self.storage.store(fields, axes)
        if self.drops is not None:
            self.drops.note(ids.numel())
        return ids

    def sample(self, batch_size: int, out: Batch | None) -> Batch:
        """Draw a batch."""
        if out is not None:
            checked_out(out)
        if self.kernels is None:
            drawn = self.draws.draw(self.stream, batch_size, self.counts)
            batch = self.batch(drawn.ids, {"weight": drawn.weight, "probability": drawn.probability})
        else:
            batch = self.layout.batch(self.kernels.sample(batch_size))
        if out is None:
            return batch
        copy_batch(batch, out)
        return out

    def batch(self, ids: Tensor, extra: dict[str, Tensor]) -> Batch:
        """Return stored steps as a batch, with further columns."""
        return self.layout.batch(self.assembly.columns(ids) | extra | {"id": ids})

    def nested(self, columns: dict[str, Tensor]) -> dict[str, Any]:
        """Return flat columns nested as the fields are."""
        return self.layout.unflatten(iter(columns.values()))

    def update(self, ids: Any, td_error: Any, priority: Any) -> Tensor:
        """Apply feedback and return how many of the ids were stored."""
        rows, values, priorities = feedback_tensors(ids, td_error, priority, self.options)
        return self.draws.update(rows, values, priorities, self.counts)

    def write(self, ids: Any, values: dict[str, Any]) -> Tensor:
        """Change stored values and return how many of the ids were stored."""
        rows, tensors = written_tensors(ids, self.layout.written(values), self.options)
        frames, rest = (
            [
                (columns, packing.words(path, tensors[path]))
                for path, columns in packing.columns.items()
                if path in tensors
            ]
            for packing in self.packings
        )
        stored = self.ring.write(rows, frames, rest).sum()
        self.counts[1].add_(len(rows) - stored)
        return stored

    def probabilities(self, ids: Tensor, batch_size: int | None) -> Tensor:
        """Return the sampling probabilities of some steps (n,)."""
        return self.draws.probabilities(ids, batch_size)
