"""The sampler that draws what another run drew."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab import _core
from replaylab.arguments import check, place, whole
from replaylab.errors import ConfigError, EmptyBufferError, IdError
from replaylab.replay.data.seeding import PythonDraws
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.samplers.tape_file import Ids, TapeReader


@dataclass(frozen=True)
class Tape(Sampler):
    """Draw for draw the steps that a recorded run drew, by their ids: a placebo for what chose them.

    The k-th call of `sample` gives the ids of the recorded run's k-th, in their order. So ages, neighbours, duplicates
    and evenness are those of the recorded run, but what chose there knew nothing of the steps stored here. With
    `replicas`, replica r draws what replica (r + `shift`) mod R of the recorded run did. Both runs must store alike: as
    many steps before each draw, in as large a buffer. Feedback changes nothing; every weight is 1 and every
    ``probability`` NaN. Law: P(i) is 1 for the recorded ids, else 0. Source: none, a placebo of this library.

    Attributes:
        path: The tape, which `TapeRecorder` or `TapeWriter` wrote. Snapshots hold its path alone.
        shift: How many replicas further the draws of a replica come from, no multiple of R but 0. Default: 0.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from replaylab import Field, ReplayBuffer
        >>> from replaylab.replay import TapeWriter
        >>> def filled(**options):
        ...     buffer = ReplayBuffer(10, {"x": Field()}, **options)
        ...     _ = buffer.extend(x=range(10))
        ...     return buffer
        >>> one, writer = filled(seed=0), TapeWriter()
        >>> drawn = one.sample(4).id
        >>> writer.append(drawn)
        >>> with TemporaryDirectory() as folder:
        ...     writer.write(Path(folder, "one.tape"))
        ...     other = filled(seed=1, sampler=Tape(str(Path(folder, "one.tape"))))
        ...     (other.sample(4).id == drawn).all()
        np.True_
    """

    path: str
    shift: int = 0

    no_law: ClassVar[str] = "the rows are those that the recorded run drew"
    in_core: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, path=place("a tape"), shift=whole(0))
        object.__setattr__(self, "path", os.fspath(self.path))

    def of_replica(self, replica: int, replicas: int) -> "Tape":
        """Return the sampler of one of several replicas, each of which has a buffer of its own.

        Raises:
            ConfigError: The tape has fewer replicas, or `shift` leads each back to itself.
            StorageError, SnapshotError: It cannot be read.
        """
        return replace(self, shift=int(_origins(TapeReader(self.path), self, replicas)[replica]))

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know: nothing, it only stores."""
        return _core.SamplerConfig("uniform")


class TapePlayer(PythonDraws):
    """The part of a buffer that serves `Tape`: the tape, and how far it is.

    Args:
        core: Of the buffer.
        sampler: What is replayed.
        generators: As every part that draws in Python has; it draws nothing.
        replicas: Of the buffer, R.

    Raises:
        ConfigError: The tape has fewer replicas than the buffer, or `shift` leads each replica back to itself.
        StorageError, SnapshotError: It cannot be read.
    """

    def __init__(self, core: _core.Replay, sampler: Tape, generators: list[np.random.Generator], replicas: int) -> None:
        super().__init__(core, generators)
        self.sampler, self._core = sampler, core
        self._tape = TapeReader(sampler.path)
        self._origins = _origins(self._tape, sampler, replicas)
        self._played = 0

    def draw(self, batch_size: int, replicas: int | None, min_size: int) -> tuple[Ids, dict[str, Any]]:
        """Return the ids of the next draw, ``[R] B``, and its rows; the tape moves on.

        Raises:
            ConfigError: The tape's draws have another number of rows, or it is at its end, or a step is not stored
                here, or not any more: the recorded run stored otherwise, which more steps do not mend.
            EmptyBufferError: Less than `min_size` is stored; the tape stays where it is.
        """
        least = min(self._core.counts()[0])
        if min_size > max(least, 1):
            raise EmptyBufferError(
                f"the buffer was made with min_size={min_size}, but only {least} steps are stored; add more steps "
                "before sampling"
            )
        tape, path = self._tape, self.sampler.path
        if batch_size != tape.rows:
            raise ConfigError(
                f"`batch_size` must be {tape.rows}, the rows of each draw on the tape {path}, but got {batch_size}"
            )
        if self._played == tape.draws:
            raise ConfigError(
                f"the tape {path} holds {tape.draws} draws, and all were replayed; record a run that is as long as "
                "this one"
            )
        ids = tape.ids(self._played)[self._origins]
        ids = ids if replicas is not None else ids[0]
        try:
            columns = self._core.gather(ids, True)
        except IdError as error:
            raise ConfigError(
                f"draw {self._played} of the tape {path} asks for a step that is not here: {error}. The recorded run "
                "must have stored as many steps before each draw, in a buffer of the same capacity"
            ) from error
        self._played += 1
        return ids, columns

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return how far the tape is, and where each replica's draws come from."""
        return {f"custom{r}.tape": np.array([self._played, origin]) for r, origin in enumerate(self._origins)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        kept = np.stack([arrays[f"custom{r}.tape"] for r in range(len(self._origins))])
        self._played, self._origins = int(kept[0, 0]), kept[:, 1] % self._tape.replicas
        super().restore(arrays, generators)


def _origins(tape: TapeReader, sampler: Tape, replicas: int) -> Ids:
    """Return which of the tape's replicas each of a buffer's draws from, (R,)."""
    if tape.replicas < replicas:
        raise ConfigError(
            f"the tape {sampler.path} must have a replica for each of the buffer's {replicas}, but has "
            f"{tape.replicas}; record it with as many"
        )
    if sampler.shift and sampler.shift % tape.replicas == 0:
        raise ConfigError(
            f"`shift` must lead to other replicas, so be no multiple of the {tape.replicas} of the tape "
            f"{sampler.path}, but got {sampler.shift}; record more replicas, or write shift=0 for a replica's own"
        )
    return (np.arange(replicas) + sampler.shift) % tape.replicas
