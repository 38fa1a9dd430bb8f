"""What a buffer was declared to be: its checked arguments, and all that follows from them alone."""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as ListOf
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import checked, flag, one_of
from replaylab.errors import ConfigError, ReplayError, SnapshotError
from replaylab.replay.config_json import (
    config_from_json,
    config_to_json,
    fields_from_json,
    fields_to_json,
    is_custom,
)
from replaylab.replay.data.arrays import MOST, checked_progress, positive, refuse, steps_of
from replaylab.replay.data.autoreset import checked_mode, with_final_obs
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Field, Tree, check_fields, flatten_as, unflatten
from replaylab.replay.data.memory import check_memory, core_fields, machine_memory
from replaylab.replay.data.schedules import as_schedule
from replaylab.replay.data.seeding import Seed, sampling_streams
from replaylab.replay.samplers.basic import Mixture, Sampler, Uniform
from replaylab.replay.samplers.custom import CustomSampler
from replaylab.replay.samplers.step_records import EACH
from replaylab.replay.storage.mapped import Storage, checked_storage
from replaylab.replay.storage.retention import Fifo, Reservoir, Retention
from replaylab.replay.transforms.hindsight import Hindsight, of_outcome
from replaylab.replay.transforms.stacked_input import check_first_stacks
from replaylab.replay.transforms.transforms import FrameStack, NStep, Sequence, Transform, check_ends, transform_config

Kind = TypeVar("Kind", bound=Transform)


class Declaration:
    """The arguments of a `ReplayBuffer`, checked; its attributes are called as they are there."""

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Tree],
        *,
        num_envs: int | None = None,
        replicas: int | None = None,
        sampler: Sampler | None = None,
        transforms: ListOf[Transform] = (),
        next_obs: Literal["stored", "derived"] = "stored",
        retention: Retention | None = None,
        storage: Storage | None = None,
        autoreset: Any = None,
        count_replays: bool = False,
        min_size: int = 1,
    ) -> None:
        self.flat = check_fields(fields)
        self.fields = dict(fields)
        self.nested = any(name not in self.flat for name in fields)
        self.capacity = positive("capacity", capacity)
        self.num_envs = None if num_envs is None else positive("num_envs", num_envs, most=MOST)
        self.replicas = None if replicas is None else positive("replicas", replicas, most=MOST)
        if self.num_envs is not None and self.num_envs > self.capacity:
            raise ConfigError(
                f"`capacity` must hold one step of every environment, but got (capacity={self.capacity:,}, "
                f"num_envs={self.num_envs:,}); use a larger capacity"
            )
        self.sampler = Uniform() if sampler is None else sampler
        if not isinstance(self.sampler, Sampler):
            raise ConfigError(f"`sampler` must be a Sampler such as Uniform(), but got {self.sampler!r}")
        self.next_obs = checked("next_obs", next_obs, one_of("stored", "derived"))
        if not isinstance(transforms, ListOf):
            raise ConfigError(f"`transforms` must be a list or tuple of transforms, but got {transforms!r}")
        self.transforms = tuple(transforms)
        self._core_transforms = transform_config(self.transforms, self.flat, next_obs == "derived")
        self.n_step, self.stack = self._transform(NStep), self._transform(FrameStack)
        self.hindsight, self.sequence = self._transform(Hindsight), self._transform(Sequence)
        self._known = self._known_of_outcome()
        self.plain_batches = self.hindsight is None and not self.nested
        by_episodes = [*self.transforms, *[self.sampler] * self.sampler.needs_episodes]
        if by_episodes:
            check_ends(self.flat, type(by_episodes[0]).__name__)
        self.retention = Fifo() if retention is None else retention
        self._check_retention()
        self.usual_batch = min(2**20, machine_memory() // (self.batch_row_nbytes * (self.replicas or 1)))
        """Batches up to this size need no closer look."""
        self.storage = checked_storage(storage, next_obs, self.retention, self.sampler, self.flat)
        self.count_replays = checked("count_replays", count_replays, flag)
        self.min_size = positive("min_size", min_size)
        if self.min_size > self.capacity:
            raise ConfigError(
                f"`min_size` must be at most the capacity, or nothing could ever be drawn, but got (min_size="
                f"{self.min_size:,}, capacity={self.capacity:,})"
            )
        if self.sequence is not None and not self.sampler.draws_sequences:
            raise ConfigError(
                f"{self.sampler!r} gives every step once, but a sequence may still grow after it was drawn; use "
                "another sampler with Sequence, or no Sequence"
            )
        self.autoreset = checked_mode(autoreset, self.flat)
        self.given = self._given_fields()
        parts = self.sampler.parts if isinstance(self.sampler, Mixture) else (self.sampler,)
        self._schedules = [as_schedule(part.scheduled) for part in parts]
        bounds = [schedule.bounds for schedule in self._schedules]
        self._constant = [least for least, most in bounds if least == most]
        self._unscheduled = len(self._constant) == len(self._schedules)

    @property
    def plain(self) -> bool:
        """Whether `add` may hand what it is given to the core as it is."""
        custom = isinstance(self.sampler, CustomSampler)
        return not self.nested and not custom and self.given is self.flat and self.autoreset != "same_step"

    def make_core(self, seed: Seed) -> _core.Replay:
        """Return the compiled part of a buffer, empty.

        Raises:
            OverSizeError: It would not fit into this machine's memory.
            StorageError: The storage cannot be made, or what is there was declared otherwise.
        """
        config, fields = self.sampler.core_config(), core_fields(self.flat)
        reservoir = isinstance(self.retention, Reservoir)
        sizes = (self.capacity, self.replicas or 1, self.num_envs or 1)
        on_disk = self.storage is not None and self.storage.on_disk
        record = EACH if isinstance(self.sampler, CustomSampler) else 0
        check_memory(self.flat, *sizes, config, self._core_transforms, reservoir, self.count_replays, on_disk, record)
        axes = {"num_envs": self.num_envs, "replicas": self.replicas}
        return _core.Replay(
            fields,
            self.capacity,
            -1 if self.replicas is None else self.replicas,
            -1 if self.num_envs is None else self.num_envs,
            config,
            sampling_streams(seed, self.replicas),
            self.autoreset == "next_step",
            self._core_transforms,
            reservoir,
            self.count_replays,
            self.min_size,
            None if self.storage is None else self.storage.core_config(self.flat, self.capacity, **axes),
        )

    def arguments(self) -> dict[str, Any]:
        """Return what makes the same declaration again."""
        names = ("capacity", "fields", "num_envs", "replicas", "sampler", "transforms", "next_obs", "retention")
        return {name: getattr(self, name) for name in (*names, "storage", "autoreset", "count_replays", "min_size")}

    def steps(
        self, core: _core.Replay, steps: dict[str, Any], final_obs: Any, where: Any, *, many: bool
    ) -> tuple[dict[str, Any], int]:
        """Return the flat values of one call of `add` or `extend`, as they are stored, and how many time steps.

        Raises:
            FieldError: A field is missing or unknown, or `final_obs` is.
            ShapeError, DtypeError: A value breaks the axis rule or does not fit the field's dtype.
        """
        values = dict(flatten_as(self.fields, steps)) if self.nested else steps
        if values.keys() != self.flat.keys() or (final_obs is not None and self.autoreset != "same_step"):
            refuse("extend" if many else "add", values | {"final_obs": final_obs}, tuple(self.flat))
        first = next(iter(self.flat))
        length = steps_of(first, values[first], 0 if self.replicas is None else 1) if many else None
        leading = (self.replicas, length, self.num_envs)
        if self.autoreset == "same_step":
            values = with_final_obs(values, final_obs, where, self.given, leading)
        if self.stack is not None and self.given is not self.flat:
            resets_left_out = self.autoreset == "next_step"
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
            given = checked_progress(progress, self.replicas)
            return self._constant if self._unscheduled else [one(at) for at in given for one in self._schedules]
        changing = next(schedule for schedule in self._schedules if schedule.bounds[0] < schedule.bounds[1])
        raise ConfigError(
            f"{type(self.sampler).__name__} has a number that changes over the run ({changing}), so "
            "`progress` in [0, 1] is needed; pass progress=step / total_steps, or make it constant"
        )

    def relabel(self, columns: dict[str, Any]) -> None:
        """Recompute what depends on the goal in a batch's flat columns, if goals are relabelled."""
        if self.hindsight is None:
            return
        self.hindsight.recompute(columns, self._known, self.n_step)

    def _known_of_outcome(self) -> list[str]:
        """Return the fields that a batch holds for every step whose outcome is recomputed."""
        states = self.sequence.state if self.sequence else ()
        known = [path for path in self.flat if not any(path == s or path.startswith(f"{s}.") for s in states)]
        if self.n_step is None:
            return known
        stacked = self.stack.leaves(self.flat) if self.stack else []
        return [p for p in known if of_outcome(p) or (p.split(".")[0] != "obs" and p not in stacked)]

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
        return {name: unflatten(tree, leaves) for name, tree in self.fields.items()}

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "replicas": self.replicas,
            "autoreset": self.autoreset,
            "fields": fields_to_json(self.fields),
            "sampler": config_to_json(self.sampler),
            "transforms": [config_to_json(one) for one in self.transforms],
            "next_obs": self.next_obs,
            "retention": config_to_json(self.retention),
            "count_replays": self.count_replays,
            "min_size": self.min_size,
            "storage": config_to_json(self.storage),
        }

    def check_json(self, manifest: Mapping[str, Any]) -> None:
        """Raise `SnapshotError` unless a buffer of the same declaration can be made from a manifest as it was read.

        What is not written down (see `arguments_from_json`) is taken to be given again.
        """
        about, ours = manifest["about"], self.to_json()
        given = [
            getattr(self, name) if is_custom(about[name]) else None for name in ("sampler", "transforms", "storage")
        ]
        try:
            arguments = self.arguments_from_json(about, *given)
            made = Declaration(**arguments).to_json()
        except (ReplayError, TypeError, ValueError) as error:
            raise SnapshotError(f"the buffer has options that cannot be written down: {error}") from error
        for name, value in ours.items():
            if made[name] != value:
                raise SnapshotError(
                    f"`{name}` cannot be written down: {value!r:.200} would be read as {made[name]!r:.200}; use plain "
                    "numbers and strings in it"
                )

    @staticmethod
    def arguments_from_json(
        value: dict[str, Any],
        sampler: Sampler | None,
        transforms: ListOf[Transform] | None,
        storage: Storage | None,
    ) -> dict[str, Any]:
        """Return a buffer's arguments from what `to_json` returned; what is given is not taken from it.

        Raises:
            SnapshotError: A sampler or transform is not this library's, or holds functions, and is not given.
        """
        return {
            "capacity": value["capacity"],
            "num_envs": value["num_envs"],
            "replicas": value["replicas"],
            "autoreset": value["autoreset"],
            "fields": fields_from_json(value["fields"]),
            "sampler": config_from_json(value["sampler"]) if sampler is None else sampler,
            "transforms": config_from_json(value["transforms"]) if transforms is None else transforms,
            "next_obs": value["next_obs"],
            "retention": config_from_json(value["retention"]),
            "count_replays": value["count_replays"],
            "min_size": value.get("min_size", 1),
            "storage": config_from_json(value.get("storage")) if storage is None else storage,
        }

    def _transform(self, kind: type[Kind]) -> Kind | None:
        return next((one for one in self.transforms if isinstance(one, kind)), None)

    def _given_fields(self) -> dict[str, Field]:
        """Return the fields as `add` is given them: stacks, where frames are cut out of them."""
        if self.stack is None or not self.stack.stacked_input:
            return self.flat
        stacked = dict.fromkeys(self.stack.leaves(self.flat))
        return {
            path: Field((self.stack.length, *field.shape), field.dtype) if path in stacked else field
            for path, field in self.flat.items()
        }

    def _check_retention(self) -> None:
        if not isinstance(self.retention, (Fifo, Reservoir)):
            raise ConfigError(f"`retention` must be Fifo() or Reservoir(), but got {self.retention!r}")
        if isinstance(self.retention, Fifo):
            return
        if self.transforms or self.next_obs == "derived":
            raise ConfigError(
                'a Reservoir keeps single transitions, so neither `transforms` nor next_obs="derived" can look '
                f"around them, but got {list(self.transforms)}, next_obs={self.next_obs!r}; use Fifo()"
            )
        if self.sampler.needs_order:
            raise ConfigError(
                f"{type(self.sampler).__name__} goes by the order of the steps, which a Reservoir does not keep; "
                "use a sampler such as Uniform or Prioritized, or Fifo()"
            )


class Declared:
    """What a buffer says of its declaration."""

    _made: Declaration

    @property
    def capacity(self) -> int:
        """C, the steps kept in each replica."""
        return self._made.capacity

    @property
    def fields(self) -> dict[str, Tree]:
        """The fields as declared."""
        return dict(self._made.fields)

    @property
    def given_fields(self) -> dict[str, Tree]:
        """The fields as `add` takes them: as declared, but stacks where `FrameStack` cuts single frames out of them."""
        return self._made.unflatten(iter(self._made.given.values()))

    @property
    def num_envs(self) -> int | None:
        """E, or None where there is no environment axis."""
        return self._made.num_envs

    @property
    def replicas(self) -> int | None:
        """R, or None where there is no replica axis."""
        return self._made.replicas

    @property
    def sampler(self) -> Sampler:
        """What is drawn."""
        return self._made.sampler

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """What a drawn step becomes."""
        return self._made.transforms

    @property
    def retention(self) -> Retention:
        """What is kept."""
        return self._made.retention

    @property
    def storage(self) -> Storage | None:
        """Where the rows lie, None: in this process's memory."""
        return self._made.storage

    @property
    def min_size(self) -> int:
        """The steps that must be stored before a batch is drawn."""
        return self._made.min_size

    @property
    def next_obs(self) -> str:
        """Whether next observations are "stored" or "derived"."""
        return self._made.next_obs

    @property
    def autoreset(self) -> str | None:
        """The environments' autoreset mode, or None."""
        return self._made.autoreset
