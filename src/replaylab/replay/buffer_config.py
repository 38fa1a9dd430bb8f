"""The options of a buffer: each is declared, checked and saved here, and listed once more in `ReplayBuffer`."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import KW_ONLY, MISSING, dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Literal, TypeVar

from replaylab import _core
from replaylab.arguments import LARGEST_AXIS, Rule, Unfit, check, flag, one_of, optional, whole
from replaylab.errors import ConfigError, ReplayError, SnapshotError
from replaylab.replay.config_json import (
    config_from_json,
    config_to_json,
    fields_from_json,
    fields_to_json,
    is_custom,
)
from replaylab.replay.data.autoreset import checked_mode
from replaylab.replay.data.fields import Field, Tree, check_fields
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.uniform import Uniform
from replaylab.replay.storage.retention import Fifo, Reservoir, Retention
from replaylab.replay.storage.storage import Storage, checked_storage
from replaylab.replay.transforms.sequence import Sequence
from replaylab.replay.transforms.transform import Transform
from replaylab.replay.transforms.transform_config import check_ends, transform_config

Kind = TypeVar("Kind", bound=Transform)

AXIS = whole(most=LARGEST_AXIS)


def _sampler(value: Any) -> Sampler:
    """A sampler; None: uniform draws."""
    if value is not None and not isinstance(value, Sampler):
        raise Unfit("a Sampler such as Uniform()")
    return Uniform() if value is None else value


def _retention(kinds: tuple[type[Retention], ...]) -> Rule[Retention]:
    """What is kept; None: first in, first out."""

    def rule(value: Any) -> Retention:
        if value is not None and not isinstance(value, kinds):
            raise Unfit(" or ".join(f"{kind.__name__}()" for kind in kinds))
        return Fifo() if value is None else value

    return rule


def _transforms(value: Any) -> tuple[Transform, ...]:
    """Transforms, each of which `transform_config` checks."""
    if not isinstance(value, ListOf):
        raise Unfit("a list or tuple of transforms")
    return tuple(value)


@dataclass(frozen=True, eq=False)
class BufferConfig:
    """The options of a `ReplayBuffer`, which documents them.

    A new one is added here, with its rule in `__post_init__` and its property in `Configured`, and to the constructor
    of `ReplayBuffer`, which hands it over; snapshots, parts and handles then have it, and older snapshots its default.

    Attributes:
        flat: The fields by path.
        core_transforms: The transforms, as the compiled core takes them.
        kind: Whose options they are.
        rows_elsewhere: Whether somebody else stores the rows.
        retentions: What may be kept.
    """

    kind: ClassVar[str] = "ReplayBuffer"
    rows_elsewhere: ClassVar[bool] = False
    retentions: ClassVar[tuple[type[Retention], ...]] = (Fifo, Reservoir)

    capacity: int
    fields: Mapping[str, Tree]
    _: KW_ONLY
    num_envs: int | None = None
    replicas: int | None = None
    sampler: Sampler = Uniform()  # noqa: RUF009 - frozen
    transforms: ListOf[Transform] = ()
    next_obs: Literal["stored", "derived"] = "stored"
    retention: Retention = Fifo()  # noqa: RUF009
    storage: Storage | None = None
    autoreset: Any = None
    count_replays: bool = False
    min_size: int = 1
    flat: dict[str, Field] = field(init=False, repr=False)
    core_transforms: _core.TransformConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._put("flat", check_fields(self.fields))
        self._put("fields", dict(self.fields))
        check(self, "", capacity=whole(), num_envs=optional(AXIS), replicas=optional(AXIS))
        check(self, "", sampler=_sampler, next_obs=one_of("stored", "derived"), transforms=_transforms)
        check(self, "", retention=_retention(self.retentions), count_replays=flag, min_size=whole())
        self._put("core_transforms", transform_config(self.transforms, self.flat, self.next_obs == "derived"))
        self._put("autoreset", checked_mode(self.autoreset, self.flat))
        by_episodes = [*self.transforms, *[self.sampler] * self.sampler.needs_episodes]
        if by_episodes:
            check_ends(self.flat, type(by_episodes[0]).__name__)
        self._check_sizes()
        self._check_retention()
        self._put("storage", checked_storage(self.storage, self.next_obs, self.retention, self.sampler, self.flat))
        if self.transform(Sequence) is not None and not self.sampler.draws_sequences:
            raise ConfigError(
                f"{self.sampler!r} draws every step once, but a sequence may still grow after it was drawn; use "
                "another sampler with Sequence, or no Sequence"
            )

    def transform(self, kind: type[Kind]) -> Kind | None:
        """Return the transform of this kind, if there is one."""
        return next((one for one in self.transforms if isinstance(one, kind)), None)

    @property
    def kept(self) -> dict[str, Field]:
        """The fields by path that a row holds."""
        return {} if self.rows_elsewhere else self.flat

    @classmethod
    def names(cls) -> list[str]:
        """Return the options' names."""
        return [one.name for one in dataclass_fields(cls) if one.init]

    def arguments(self) -> dict[str, Any]:
        """Return what makes the same configuration again."""
        return {name: getattr(self, name) for name in self.names()}

    def to_json(self) -> dict[str, Any]:
        """Return all options as JSON values."""
        return {
            name: fields_to_json(value) if name == "fields" else config_to_json(value)
            for name, value in self.arguments().items()
        }

    @classmethod
    def arguments_from_json(cls, value: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options from what `to_json` returned; those given, and not None, are not taken from it.

        Raises:
            SnapshotError: One is not this library's, or holds functions, and is not given.
        """
        wanted = [
            one.name for one in dataclass_fields(cls) if one.init and (one.name in value or one.default is MISSING)
        ]
        read = {
            name: fields_from_json(value[name]) if name == "fields" else config_from_json(value[name])
            for name in wanted
            if given.get(name) is None
        }
        return read | {name: one for name, one in given.items() if one is not None}

    def check_json(self, manifest: Mapping[str, Any]) -> None:
        """Raise `SnapshotError` unless the same configuration can be made from a manifest as it was read.

        What is not written down (see `arguments_from_json`) is taken to be given again.
        """
        about, ours = manifest["about"], self.to_json()
        given = {name: getattr(self, name) for name in GIVEN if is_custom(about.get(name))}
        try:
            made = type(self)(**self.arguments_from_json(about, given)).to_json()
        except (ReplayError, TypeError, ValueError) as error:
            raise SnapshotError(f"the buffer has options that cannot be written down: {error}") from error
        for name, value in ours.items():
            if made[name] != value:
                raise SnapshotError(
                    f"`{name}` cannot be written down: {value!r:.200} would be read as {made[name]!r:.200}; use plain "
                    "numbers and strings in it"
                )

    def _put(self, name: str, value: Any) -> None:
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


GIVEN = ("sampler", "transforms", "storage")
"""Options that may be a user's own, of which a snapshot holds the name alone; they are given again to `load`."""


class Configured:
    """A buffer's options as properties."""

    _config: BufferConfig

    @property
    def capacity(self) -> int:
        """C, the steps kept in each replica."""
        return self._config.capacity

    @property
    def fields(self) -> dict[str, Tree]:
        """The fields as declared."""
        return dict(self._config.fields)

    @property
    def num_envs(self) -> int | None:
        """E, or None where there is no environment axis."""
        return self._config.num_envs

    @property
    def replicas(self) -> int | None:
        """R, or None where there is no replica axis."""
        return self._config.replicas

    @property
    def sampler(self) -> Sampler:
        """What is drawn."""
        return self._config.sampler

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """What a drawn step becomes."""
        return tuple(self._config.transforms)

    @property
    def retention(self) -> Retention:
        """What is kept."""
        return self._config.retention

    @property
    def storage(self) -> Storage | None:
        """Where the rows lie, None: in this process's memory."""
        return self._config.storage

    @property
    def min_size(self) -> int:
        """The steps that must be stored before a batch is drawn."""
        return self._config.min_size

    @property
    def next_obs(self) -> str:
        """Whether next observations are "stored" or "derived"."""
        return self._config.next_obs

    @property
    def autoreset(self) -> str | None:
        """The environments' autoreset mode, or None."""
        mode: str | None = self._config.autoreset
        return mode
