"""The sampler that draws what another run drew."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from replaylab.arguments import check, option, place, whole
from replaylab.errors import ConfigError
from replaylab.replay import Batch, Sampler, Seed
from replaylab.replay.samplers.engine import Core, DrawEngine, Floats, Layout, PythonEngine
from replaylab.research.tape_file import Ids, TapeReader


@dataclass(frozen=True)
class Tape(Sampler):
    """Draw for draw the steps that a recorded run drew, by their ids: a placebo for what chose them.

    The k-th call of `sample` gives the ids of the recorded run's k-th, in their order. So ages, neighbours, duplicates
    and evenness are those of the recorded run, but what chose there knew nothing of the steps stored here. With
    `replicas`, replica r draws what replica (r + `shift`) mod R of the recorded run did. Both runs must store alike: as
    many steps before each draw, in as large a buffer. Feedback changes nothing; every weight is 1 and every
    ``probability`` NaN. Sampling probability: P(i) is 1 for the recorded ids, else 0. Source: none, a placebo of this
    library.

    Attributes:
        path: The tape, which `TapeRecorder` or `TapeWriter` wrote. Snapshots hold only its path.
        shift: Offset between a replica and the recorded one: 0, or not a multiple of R. Default: 0.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from replaylab import Field, ReplayBuffer
        >>> from replaylab.research import TapeWriter
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
    shift: int = option(whole(0), 0)

    no_closed_form: ClassVar[str] = "the rows are those that the recorded run drew"
    in_core: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True
    draws_sequences: ClassVar[bool] = False
    allows_removal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, path=place("a tape"))
        object.__setattr__(self, "path", os.fspath(self.path))

    def of_replica(self, replica: int, replicas: int) -> "Tape":
        """Return the sampler of one of several replicas, each of which has its own buffer.

        Raises:
            ConfigError: The tape has fewer replicas, or `shift` leads each back to itself.
            StorageError, SnapshotError: It cannot be read.
        """
        return replace(self, shift=int(_origins(TapeReader(self.path), self, replicas)[replica]))

    def engine(self, core: Core, layout: Layout, seed: Seed) -> "DrawEngine":
        """Return what draws for a buffer."""
        return TapeEngine(core, layout, seed, self)


class TapeEngine(PythonEngine[Tape]):
    """Draws what a tape holds, or what `choose` makes of it, and remembers how far it is.

    Raises:
        ConfigError: The tape has fewer replicas than the buffer, or `shift` leads each replica back to itself.
        StorageError, SnapshotError: It cannot be read.
    """

    def __init__(self, core: Core, layout: Layout, seed: Seed, sampler: Tape) -> None:
        super().__init__(core, layout, seed, sampler)
        self._tape = TapeReader(sampler.path)
        self._origins = _origins(self._tape, sampler, layout.replicas or 1)
        self._played = 0
        self._moved = np.zeros(len(self._origins), np.int64)  # rows that `choose` took from a distant bin

    @property
    def moved_share(self) -> Floats:
        """Share of the rows drawn so far that another bin gave, (R,), 0 of a `Tape`; NaN before the first draw."""
        rows = self._played * self._tape.rows
        return self._moved / rows if rows else np.full(len(self._moved), np.nan)

    def draw(self, batch_size: int, progress: npt.ArrayLike | None) -> Batch:  # noqa: ARG002
        """Return the next draw of the tape.

        Raises:
            ConfigError: The tape's draws have another number of rows, or it is at its end, or a step is not stored
                here, or not any more: the recorded run stored otherwise, which more steps do not change.
            EmptyBufferError: Less than `min_size` is stored; the tape stays where it is.
        """
        with self.lock.held():
            ids, probability = self._next(batch_size)
            ids, probability = (ids, probability) if self._layout.replicas is not None else (ids[0], probability[0])
            columns = self._core.gather(ids, True)
            self._played += 1
            self._layout.relabel(columns)
            bookkeeping = {"weight": np.ones(ids.shape, np.float32), "probability": probability, "id": ids}
            return self._layout.batch(columns | bookkeeping)

    def choose(self, recorded: Ids, newest: Ids) -> tuple[Ids, Floats]:  # noqa: ARG002
        """Return the ids to draw, (R, B), and their probabilities, from those that were recorded.

        Args:
            recorded: All of them are stored here, (R, B).
            newest: The newest id stored, (R,).
        """
        return recorded, np.full(recorded.shape, np.nan)

    def _next(self, batch_size: int) -> tuple[Ids, Floats]:
        """Return the ids of the next draw and their probabilities, (R, B)."""
        if self._layout.min_size > 1:  # otherwise the tape determines what must be there
            self._core.check_draw(1)
        tape, path = self._tape, self._sampler.path
        if batch_size != tape.rows:
            raise ConfigError(
                f"`batch_size` must be {tape.rows}, the rows of each draw on the tape {path}, but got {batch_size}"
            )
        if self._played == tape.draws:
            raise ConfigError(
                f"the tape {path} holds {tape.draws} draws, and all were replayed; record a run that is as long as "
                "this one"
            )
        recorded = tape.ids(self._played)[self._origins]
        sizes, next_ids = map(np.asarray, self._core.counts())
        for r, ids in enumerate(recorded):
            oldest, newest = next_ids[r] - sizes[r], next_ids[r] - 1
            if ids.min() < oldest or ids.max() > newest:
                wrong = ids[(ids < oldest) | (ids > newest)][0]
                raise ConfigError(
                    f"draw {self._played} of the tape {path} asks for step {wrong}, but the buffer holds steps "
                    f"{oldest} to {newest}. The recorded run must have stored as many steps before each draw, in a "
                    "buffer of the same capacity"
                )
        return self.choose(recorded, next_ids - 1)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return how far the tape is, and where each replica's draws come from."""
        shift = self._sampler.shift
        return {f"custom{r}.tape": np.array([self._played, origin, shift]) for r, origin in enumerate(self._origins)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], generators: list[Any]) -> None:
        """Take over what `arrays` and `generators` returned."""
        tapes = np.stack([arrays[f"custom{r}.tape"] for r in range(len(self._origins))])
        saved_shift = tapes[:, 2] if tapes.shape[1] > 2 else self._sampler.shift  # older snapshots lack it
        self._played = int(tapes[0, 0])
        self._origins = (tapes[:, 1] - saved_shift + self._sampler.shift) % self._tape.replicas
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
