"""The options of a buffer: declared, checked and saved here, and listed again in the constructor of `ReplayBuffer`."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import KW_ONLY, dataclass, field
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from replaylab import _core
from replaylab.arguments import LARGEST_AXIS, Rule, check, flag, instance, one_of, option, optional, whole
from replaylab.episode_ends import ENDS
from replaylab.errors import ConfigError, ReplayError, SnapshotError
from replaylab.replay.data.autoreset import checked_mode
from replaylab.replay.data.fields import Field, Tree, check_fields
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.uniform import Uniform
from replaylab.replay.snapshot import (
    config_from_json,
    config_to_json,
    fields_from_json,
    fields_to_json,
    is_custom,
)
from replaylab.replay.storage import Assigned, Fifo, Reservoir, Retention, Storage, checked_storage
from replaylab.replay.transforms import Sequence, Transform
from replaylab.replay.transforms.transform import check_ends, transform_config

CUSTOMIZABLE = ("sampler", "transforms", "storage")
"""Options that may be instances of custom classes; they are passed to `load` again."""

Kind = TypeVar("Kind", bound=Transform)
T = TypeVar("T")

AXIS = whole(most=LARGEST_AXIS)

CLOCK_DTYPES = ("int32", "int64", "float32", "float64")


def _kind_of(kinds: tuple[type[T], ...], default: T, words: str = "") -> Rule[T]:
    """An instance of one of these classes; None: the default."""
    rule = instance(kinds, words or " or ".join(f"{kind.__name__}()" for kind in kinds))
    return lambda value: default if value is None else rule(value)


def _transforms(value: Any) -> tuple[Transform, ...]:
    """Transforms, each of which `transform_config` checks."""
    return tuple(instance(ListOf, "a list or tuple of transforms")(value))


@dataclass(frozen=True, eq=False)
class BufferConfig:
    """The options of a `ReplayBuffer`, which documents them: each with its rule and its default.

    A new option is added here and to the constructor of `ReplayBuffer`; snapshots, parts and handles then include it.

    Attributes:
        flat: The fields by path.
        core_transforms: The transforms in the form of the compiled core.
        kind: Name of the class these options configure.
        rows_elsewhere: Whether the rows are stored outside the buffer.
    """

    kind: ClassVar[str] = "ReplayBuffer"
    rows_elsewhere: ClassVar[bool] = False

    capacity: int
    fields: Mapping[str, Tree]
    _: KW_ONLY
    num_envs: int | None = option(optional(AXIS), None)
    replicas: int | None = option(optional(AXIS), None)
    sampler: Sampler = option(_kind_of((Sampler,), Uniform(), "a Sampler such as Uniform()"), Uniform())
    transforms: ListOf[Transform] = option(_transforms, ())
    next_obs: Literal["stored", "derived"] = option(one_of("stored", "derived"), "stored")
    retention: Retention = option(_kind_of((Fifo, Reservoir), Fifo()), Fifo())
    storage: Storage | None = None
    autoreset: Any = None
    count_replays: bool = option(flag, False)
    min_size: int = option(whole(), 1)
    episodes: Literal["flags", "manual"] = option(one_of("flags", "manual"), "flags")
    flat: dict[str, Field] = field(init=False, repr=False)
    core_transforms: _core.TransformConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._set("flat", check_fields(self.fields))
        self._set("fields", dict(self.fields))
        check(self, "", capacity=whole())
        self._set("core_transforms", transform_config(self.transforms, self.flat, self.next_obs == "derived"))
        self._set("autoreset", checked_mode(self.autoreset, self.flat))
        manual = self.episodes == "manual"
        if self.transforms:
            check_ends(self.flat, type(self.transforms[0]).__name__, ENDS, manual)
        self._check_clock()
        if self.sampler.needs_episodes:
            check_ends(self.flat, type(self.sampler).__name__, self.sampler.end_fields, manual)
        self._check_sizes()
        self._check_retention()
        self._set("storage", checked_storage(self.storage, self.next_obs, self.retention, self.sampler, self.flat))
        if self.transform(Sequence) is not None and not self.sampler.draws_sequences:
            raise ConfigError(
                f"{self.sampler!r} draws single steps, each once; use another sampler with Sequence, or no Sequence"
            )

    def transform(self, kind: type[Kind]) -> Kind | None:
        """Return the transform of this kind, if there is one."""
        return next((transform for transform in self.transforms if isinstance(transform, kind)), None)

    @property
    def stored_fields(self) -> dict[str, Field]:
        """The fields by path that the buffer's rows hold; none if the rows are stored elsewhere."""
        return {} if self.rows_elsewhere else self.flat

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the options."""
        return [option_field.name for option_field in dataclass_fields(cls) if option_field.init]

    def __reduce__(self) -> Any:  # the core's part is computed again
        return partial(type(self), **self.arguments()), ()

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments of an equal configuration."""
        return {name: getattr(self, name) for name in self.names()}

    def to_json(self) -> dict[str, Any]:
        """Return all options as JSON values."""
        return {
            name: fields_to_json(value) if name == "fields" else config_to_json(value)
            for name, value in self.arguments().items()
        }

    def unwritten(self) -> dict[str, Any]:
        """Return the options of custom classes, of which JSON holds only the name."""
        return {name: value for name in CUSTOMIZABLE if is_custom(config_to_json(value := getattr(self, name)))}

    @classmethod
    def arguments_from_json(cls, value: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `to_json`'s result, except that `overrides` that are not None take precedence.

        Raises:
            SnapshotError: An option is of a custom class, or holds functions, and is not among the overrides.
        """
        read = {
            name: fields_from_json(value[name]) if name == "fields" else config_from_json(value[name])
            for name in cls.names()
            if overrides.get(name) is None
        }
        return read | {name: override for name, override in overrides.items() if override is not None}

    def check_json(self, manifest: Mapping[str, Any]) -> None:
        """Raise `SnapshotError` unless a parsed manifest yields the same configuration again.

        Options that JSON cannot store are passed again, as `load` requires.
        """
        try:
            restored = type(self)(**self.arguments_from_json(manifest["about"], self.unwritten())).to_json()
        except (ReplayError, TypeError, ValueError) as error:
            raise SnapshotError(f"the buffer has options that cannot be saved: {error}") from error
        for name, value in self.to_json().items():
            if restored[name] != value:
                raise SnapshotError(
                    f"`{name}` cannot be saved: {value!r:.200} would be read as {restored[name]!r:.200}; use plain "
                    "numbers and strings in it"
                )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_sizes(self) -> None:
        if self.num_envs is not None and self.num_envs > self.capacity:
            raise ConfigError(
                f"`capacity` must hold one step of every environment, but got (capacity={self.capacity:,}, "
                f"num_envs={self.num_envs:,}); use a larger capacity"
            )
        if self.min_size > self.capacity:
            raise ConfigError(
                f"`min_size` must be at most the capacity, or nothing could ever be drawn, but got (min_size="
                f"{self.min_size:,}, capacity={self.capacity:,}); use a smaller one"
            )

    def _check_clock(self) -> None:
        names = self.sampler.clock_fields
        if len(names) > 1:
            raise ConfigError(f"a buffer has one clock, but the parts of its sampler use {names}; use the same in all")
        for name in names:
            clock = self.stored_fields.get(name)
            if clock is None or clock.shape or clock.compressed or clock.dtype.name not in CLOCK_DTYPES:
                declared = "is not stored" if clock is None else f"is {clock}"
                raise ConfigError(
                    f'`clock` of Aged must be "steps" or a stored field of one number, {", ".join(CLOCK_DTYPES)}, but '
                    f"`{name}` {declared}; declare it, for example as Field((), np.int64), and pass it to `add`"
                )

    def _check_retention(self) -> None:
        if isinstance(self.retention, Fifo):
            return
        if self.transforms or self.next_obs == "derived":
            raise ConfigError(
                'a Reservoir keeps single transitions, so neither `transforms` nor next_obs="derived" can look '
                f"around them, but got {list(self.transforms)}, next_obs={self.next_obs!r}; use Fifo()"
            )
        if self.sampler.needs_order:
            raise ConfigError(
                f"{type(self.sampler).__name__} needs the order of the steps, which {type(self.retention).__name__}() "
                "does not keep; use a sampler such as Uniform or Prioritized, or Fifo()"
            )


@dataclass(frozen=True, eq=False)
class PrioritiesConfig(BufferConfig):
    """The options of `Priorities`, which documents them."""

    kind: ClassVar[str] = "Priorities"
    rows_elsewhere: ClassVar[bool] = True

    fields: Mapping[str, Tree] = field(init=False, default_factory=lambda: dict.fromkeys(ENDS, Field((), np.bool_)))
    replicas: int | None = field(init=False, default=None)
    transforms: ListOf[Transform] = field(init=False, default=())
    next_obs: Literal["stored", "derived"] = field(init=False, default="stored")
    retention: Retention = option(_kind_of((Fifo, Assigned), Fifo()), Fifo())
    storage: Storage | None = field(init=False, default=None)
    autoreset: Any = field(init=False, default=None)
    episodes: Literal["flags", "manual"] = field(init=False, default="flags")

    def to_json(self) -> dict[str, Any]:
        """Return all options and the kind of buffer as JSON values."""
        return super().to_json() | {"kind": self.kind}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sampler.in_core:
            raise ConfigError(
                f"{type(self.sampler).__name__} is written in Python and needs rows, which Priorities does not have; "
                "use a sampler of the core, such as Prioritized or RankBased, or a ReplayBuffer"
            )
        if isinstance(self.retention, Assigned) and self.num_envs is not None:
            raise ConfigError(
                f"`num_envs` must be None with Assigned(), where each step has a slot and no environment, but got "
                f"{self.num_envs}; leave it out"
            )
