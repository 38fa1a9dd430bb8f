"""The protocols of replays, which recorders, streams, mixtures, training and checkpoints accept."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument
from replaylab.errors import ConfigError
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.fields import Tree
from replaylab.replay.samplers.sampler import Sampler


@runtime_checkable
class Replay(Protocol):
    """Stores steps, draws batches of them and takes feedback, as `ReplayBuffer` does.

    A class that has these members is a replay; it need not derive from this one. Shapes, axes and errors are those
    that `ReplayBuffer` documents for its methods of the same names. What is drawn follows a distribution that belongs
    to the replay; what a `Batch` must hold is ``weight``, ``probability``, ``id`` and the declared fields.

    What only some replays can do is in its own protocols: `RestorableReplay`, `DivisibleReplay`,
    `InspectableReplay`, `SamplerReplay`. Where one of those is needed and missing, a `ConfigError` reports it.

    Attributes:
        capacity: C, how many steps are kept, in each replica.
        fields: The fields of a step: name → `Field`, or nested mappings and tuples of them.
        num_envs: E, or None where there is no environment axis.
        replicas: R, or None where there is no replica axis.
        autoreset: The environments' autoreset mode, "next_step", "same_step" or "disabled"; None: every step given is
            a true transition. See `ReplayBuffer.add`.
        size: Steps stored now: int, or int64 ``[R]``.
        next_id: The id that the next step stored will get: int, or int64 ``[R]``.
    """

    @property
    def capacity(self) -> int: ...  # noqa: D102 - the attributes are documented above

    @property
    def fields(self) -> Mapping[str, Tree]: ...  # noqa: D102

    @property
    def num_envs(self) -> int | None: ...  # noqa: D102

    @property
    def replicas(self) -> int | None: ...  # noqa: D102

    @property
    def autoreset(self) -> str | None: ...  # noqa: D102

    @property
    def size(self) -> Any: ...  # noqa: D102

    @property
    def next_id(self) -> Any: ...  # noqa: D102

    def __len__(self) -> int:
        """Return how many steps are stored now, in the replica that has fewest."""

    def add(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store one time step of every environment and return the ids, −1 where nothing was stored.

        `final_obs` is passed only in autoreset mode "same_step".
        """

    def extend(self, /, *, where: npt.ArrayLike | None = None, final_obs: Any = None, **steps: Any) -> Any:
        """Store T time steps at once, as T calls of `add` would, and return the ids."""

    def end_episode(self, where: npt.ArrayLike | None = None) -> None:
        """Mark that environments were reset separately: their next step does not follow a stored step."""

    def sample(self, batch_size: int, *, progress: npt.ArrayLike | None = None) -> Batch:
        """Draw a batch in every replica; raise `EmptyBufferError` if too few steps are stored."""

    def update_priorities(
        self, ids: npt.ArrayLike, td_error: npt.ArrayLike | None = None, *, priority: npt.ArrayLike | None = None
    ) -> int:
        """Take the learner's feedback for these steps; return how many of them, without ids −1, are still stored.

        A replay that takes no feedback counts the ids and changes nothing.
        """

    def probabilities(
        self, ids: npt.ArrayLike, *, batch_size: int | None = None, progress: float | None = None
    ) -> npt.NDArray[np.float64]:
        """Return for each of these steps the probability that a random row of the next batch is this step."""

    def stats(self, *, batch_size: int | None = None, progress: float | None = None) -> Any:
        """Return figures of what is stored and drawn, as attributes; `ReplayStats` is what a `ReplayBuffer` returns."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to files directly in a folder, replacing what was saved there before."""


@runtime_checkable
class RestorableReplay(Replay, Protocol):
    """A replay that can restore what it saved."""

    def restore(self, path: str | PathLike[str], *, continue_episodes: bool | None = None) -> None:
        """Restore what `save` wrote, in place.

        With ``continue_episodes=True``, which checkpoints pass, it continues as the saved one would have.
        """


@runtime_checkable
class DivisibleReplay(Replay, Protocol):
    """A replay of several replicas that can be reduced to some of them, as training needs when others have ended."""

    def part(self, replicas: npt.ArrayLike) -> "DivisibleReplay":
        """Return a new replay of some of the replicas, each of which continues as it would have here."""


@runtime_checkable
class InspectableReplay(Replay, Protocol):
    """A replay that shows single steps and how often each was drawn, for measures of what is replayed."""

    def as_batch(self, ids: npt.ArrayLike) -> Batch:
        """Return these steps in the form of a drawn batch."""

    def replay_counts(self) -> list[npt.NDArray[np.int64]]:
        """Return how often each stored step was drawn, replica by replica, (N,), oldest first."""


@runtime_checkable
class SamplerReplay(Replay, Protocol):
    """A replay that draws by a sampler of this library or a custom one.

    Attributes:
        sampler: The sampler.
    """

    @property
    def sampler(self) -> Sampler: ...  # noqa: D102


@runtime_checkable
class StackedInputReplay(Replay, Protocol):
    """A replay that takes stacks of frames and stores single ones.

    Attributes:
        given_fields: The fields as `add` takes them, nested as `fields` are.
    """

    @property
    def given_fields(self) -> Mapping[str, Tree]: ...  # noqa: D102


def a_replay(value: Any) -> Replay:
    """A `Replay`, as a rule for `replaylab.arguments`."""
    if isinstance(value, type) or not isinstance(value, Replay):
        missing = missing_of(value, Replay)
        raise InvalidArgument("a ReplayBuffer or another Replay" + (f", with {', '.join(missing)}" if missing else ""))
    return value


def require(replay: Replay, ability: type[Any], feature: str) -> Any:
    """Return the replay if it has the ability that a feature needs.

    Args:
        replay: The replay.
        ability: A protocol: `RestorableReplay`, `DivisibleReplay`, `InspectableReplay`, `SamplerReplay` or
            `StackedInputReplay`.
        feature: Name of the feature that needs the ability, as the message calls it.

    Raises:
        ConfigError: The replay lacks the ability; the message names the missing members.

    Example:
        >>> from replaylab import Field, ReplayBuffer
        >>> buffer = ReplayBuffer(2, {"x": Field()})
        >>> require(buffer, RestorableReplay, "going on from a checkpoint") is buffer
        True
    """
    if not isinstance(replay, ability):
        names = ", ".join(f"`{name}`" for name in missing_of(replay, ability))
        article = "an" if ability.__name__.startswith("I") else "a"
        raise ConfigError(
            f"{feature} needs {article} {ability.__name__}, but {type(replay).__name__} has no {names}; use a "
            "ReplayBuffer, or add it"
        )
    return replay


def missing_of(value: Any, protocol: type[Any]) -> list[str]:
    """Return the members of a protocol that a value lacks; an empty list if it lacks all of them."""
    members = {
        name
        for base in protocol.__mro__
        for name in vars(base)
        if getattr(base, "_is_protocol", False) and (not name.startswith("_") or name == "__len__")
    }
    missing = sorted(name for name in members if not hasattr(value, name))
    return missing if len(missing) < len(members) else []
