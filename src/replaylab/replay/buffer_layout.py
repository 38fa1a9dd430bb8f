"""What follows from a buffer's options alone: how steps come in, and how batches go out."""

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from replaylab import _core
from replaylab.errors import ConfigError
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.data.arrays import checked_progress, refuse, steps_of
from replaylab.replay.data.autoreset import with_final_obs
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field, flatten_as, unflatten
from replaylab.replay.data.memory import check_memory, core_fields, machine_memory
from replaylab.replay.data.schedules import as_schedule
from replaylab.replay.data.seeding import Seed, sampling_streams
from replaylab.replay.samplers.custom.records import EACH
from replaylab.replay.samplers.custom.sampler import CustomSampler
from replaylab.replay.storage.storage import core_storage
from replaylab.replay.transforms.frame_stack import FrameStack
from replaylab.replay.transforms.hindsight import Hindsight, of_outcome
from replaylab.replay.transforms.n_step import NStep
from replaylab.replay.transforms.sequence import Sequence
from replaylab.replay.transforms.stacked_input import check_first_stacks


class BufferLayout:
    """The shapes of a buffer's steps and batches, and the numbers its sampler takes at a moment of the run.

    Attributes:
        flat: The fields by path, as they are stored.
        given: The fields by path, as `add` takes them: stacks, where frames are cut out of them.
        nested: Whether a field is declared as a mapping or tuple.
        n_step, stack, hindsight, sequence: The transforms, by kind, each or None.
        in_core: Whether the compiled core draws.
        plain_batches: Whether the core's columns are the batch.
        usual_batch: Batches up to this size need no closer look.
    """

    def __init__(self, config: BufferConfig) -> None:
        self._config = config
        self.flat, self._fields = config.flat, config.fields
        self._autoreset, self._replicas, self._num_envs = config.autoreset, config.replicas, config.num_envs
        self.nested = any(name not in self.flat for name in self._fields)
        self.n_step, self.stack = config.transform(NStep), config.transform(FrameStack)
        self.hindsight, self.sequence = config.transform(Hindsight), config.transform(Sequence)
        self._known = self._known_of_outcome()
        self.in_core = config.sampler.in_core
        self.plain_batches = self.hindsight is None and not self.nested
        self.usual_batch = min(2**20, machine_memory() // (self.batch_row_nbytes * (config.replicas or 1)))
        self.given = self._given_fields()
        self._schedules = [as_schedule(one) for one in config.sampler.schedules]
        bounds = [schedule.bounds for schedule in self._schedules]
        self._constant = [least for least, most in bounds if least == most]
        self._unscheduled = len(self._constant) == len(self._schedules)

    @property
    def plain(self) -> bool:
        """Whether `add` may hand what it is given to the core as it is."""
        custom = isinstance(self._config.sampler, CustomSampler)
        return not self.nested and not custom and self.given is self.flat and self._autoreset != "same_step"

    def make_core(self, seed: Seed) -> _core.Replay:
        """Return the compiled part of a buffer, empty.

        Raises:
            OverSizeError: It would not fit into this machine's memory.
            StorageError: The storage cannot be made, or what is there was declared otherwise.
        """
        config, fields = self._config, core_fields(self.flat)
        sampler, transforms = config.sampler.core_config(), config.core_transforms
        retention, counted = config.retention.core_kind, config.count_replays
        sizes = (config.capacity, config.replicas or 1, config.num_envs or 1)
        on_disk = config.storage is not None and config.storage.on_disk
        record = EACH if isinstance(config.sampler, CustomSampler) else 0
        check_memory(config.kept, *sizes, sampler, transforms, retention, counted, on_disk, record)
        axes = {"num_envs": config.num_envs, "replicas": config.replicas}
        return _core.Replay(
            fields,
            config.capacity,
            -1 if config.replicas is None else config.replicas,
            -1 if config.num_envs is None else config.num_envs,
            sampler,
            sampling_streams(seed, config.replicas),
            config.autoreset == "next_step",
            transforms,
            retention,
            counted,
            config.min_size,
            None if config.storage is None else core_storage(config.storage, self.flat, config.capacity, **axes),
            config.rows_elsewhere,
        )

    def steps(
        self, core: _core.Replay, steps: dict[str, Any], final_obs: Any, where: Any, *, many: bool
    ) -> tuple[dict[str, Any], int]:
        """Return the flat values of one call of `add` or `extend`, as they are stored, and how many time steps.

        Raises:
            FieldError: A field is missing or unknown, or `final_obs` is.
            ShapeError, DtypeError: A value breaks the axis rule or does not fit the field's dtype.
        """
        values = dict(flatten_as(self._fields, steps)) if self.nested else steps
        if values.keys() != self.flat.keys() or (final_obs is not None and self._autoreset != "same_step"):
            refuse("extend" if many else "add", values | {"final_obs": final_obs}, tuple(self.flat))
        first = next(iter(self.flat))
        length = steps_of(first, values[first], 0 if self._replicas is None else 1) if many else None
        leading = (self._replicas, length, self._num_envs)
        if self._autoreset == "same_step":
            values = with_final_obs(values, final_obs, where, self.given, leading)
        if self.stack is not None and self.given is not self.flat:
            resets_left_out = self._autoreset == "next_step"
            check_first_stacks(self.stack, values, where, self.given, leading, core.next_steps(), resets_left_out)
            axis = sum(n is not None for n in leading)
            values = {
                path: value if self.given[path] == self.flat[path] else self.stack.newest(path, value, axis)
                for path, value in values.items()
            }
        return values, length if length is not None else 1

    def scheduled(self, progress: npt.ArrayLike | None) -> list[float]:
        """Return the numbers of the sampler, or of a mixture's parts, at this progress; of each replica's one by one.

        Raises:
            ConfigError: `progress` is not in [0, 1], or missing where a number changes.
        """
        if progress is None and self._unscheduled:
            return self._constant
        if progress is not None:
            given = checked_progress(progress, self._replicas)
            return self._constant if self._unscheduled else [one(at) for at in given for one in self._schedules]
        changing = next(schedule for schedule in self._schedules if schedule.bounds[0] < schedule.bounds[1])
        raise ConfigError(
            f"{type(self._config.sampler).__name__} has a number that changes over the run ({changing}), so "
            "`progress` in [0, 1] is needed; pass progress=step / total_steps, or make it constant"
        )

    def relabel(self, columns: dict[str, Any]) -> None:
        """Recompute what depends on the goal in a batch's flat columns, if goals are relabelled."""
        if self.hindsight is None:
            return
        self.hindsight.recompute(columns, self._known, self.n_step)

    @property
    def batch_row_nbytes(self) -> int:
        """Bytes of one row of a batch, at most."""
        stacked = self.stack.leaves(self.flat) if self.stack else []
        frames = {path: self.stack.length if self.stack and path in stacked else 1 for path in self.flat}
        steps = self.sequence.burn_in + self.sequence.length if self.sequence else 1
        inner = self.n_step.steps if self.n_step and self.hindsight else 1
        own = sum(field.nbytes * frames[path] for path, field in self.flat.items())
        return own * steps * inner + 20 + 13 * steps  # weight, probability, id; discount, n_steps, mask

    def batch(self, columns: dict[str, Any]) -> Batch:
        """Return flat columns as a batch, nested as the fields are."""
        if not self.nested:
            return Batch(columns)
        nested = self.unflatten(columns.pop(path) for path in self.flat)
        return Batch(nested | columns)

    def unflatten(self, leaves: Iterator[Any]) -> dict[str, Any]:
        """Return one value for every flat field, nested as the fields are."""
        return {name: unflatten(tree, leaves) for name, tree in self._fields.items()}

    def _known_of_outcome(self) -> list[str]:
        """Return the fields that a batch holds for every step whose outcome is recomputed."""
        states = self.sequence.state if self.sequence else ()
        known = [path for path in self.flat if not any(path == s or path.startswith(f"{s}.") for s in states)]
        if self.n_step is None:
            return known
        stacked = self.stack.leaves(self.flat) if self.stack else []
        return [p for p in known if of_outcome(p) or (p.split(".")[0] != "obs" and p not in stacked)]

    def _given_fields(self) -> dict[str, Field]:
        """Return the fields as `add` is given them: stacks, where frames are cut out of them."""
        if self.stack is None or not self.stack.stacked_input:
            return self.flat
        stacked = dict.fromkeys(self.stack.leaves(self.flat))
        return {
            path: Field((self.stack.length, *field.shape), field.dtype) if path in stacked else field
            for path, field in self.flat.items()
        }
