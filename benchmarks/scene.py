"""A scene: one transform, the libraries that have it, what they must return, and what of it is timed."""

import dataclasses
import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.contestant import OfLibrary, resident_bytes
from benchmarks.limit import COPIES, LABEL, Limit
from benchmarks.timing import Rows, Turn, limit_turn, time_block

REWARD = "reward function"
MODULES = {"stable-baselines3": "stable_baselines3"}
Columns = dict[str, NDArray[Any]]
Kind = TypeVar("Kind", bound=Any)


class Drawer(OfLibrary):
    """One buffer of one library in one scene; as with `Contestant`, what `prepare_…` does is not timed.

    Attributes:
        batch: Rows of the batches that are verified.
    """

    batch: ClassVar[int] = 256

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.added = 0
        self.seeds = count(1)  # for libraries whose draws take one

    @abstractmethod
    def fill(self) -> None:
        """Make the ring full and wrapped."""

    @abstractmethod
    def fetch(self) -> dict[str, Any]:
        """Draw one batch as NumPy columns, named as in this library."""

    @abstractmethod
    def verify(self) -> None:
        """Draw, and raise unless every row is what was stored, transformed."""

    def prepare_draw(self, seeds: list[int]) -> list[Any]:
        """Return one item for each call to `draw`."""
        return seeds

    def draw(self, batch: int, inputs: list[Any]) -> None:
        """Draw one batch for each item, holding it until the next."""
        sample = self.buffer.sample
        for _ in inputs:
            drawn = sample(batch)
        del drawn

    def prepare_store(self, calls: int) -> list[Any]:
        """Return the arguments of as many calls to `store`."""
        raise NotImplementedError(f"{self.label} has nothing to store in this scene")

    def store(self, inputs: list[Any]) -> None:
        """Store each item."""
        raise NotImplementedError(f"{self.label} has nothing to store in this scene")

    def expect(self, what: str, got: ArrayLike, truth: ArrayLike, tolerance: float = 0.0) -> None:
        """Raise unless two arrays hold the same."""
        got, truth = np.asarray(got), np.asarray(truth)
        same = np.allclose(got, truth, 0, tolerance) if tolerance else np.array_equal(got, truth)
        if got.shape != truth.shape or not same:
            raise RuntimeError(f"{self.label} drew a wrong {what}: {_difference(got, truth)}")


def _difference(got: NDArray[Any], truth: NDArray[Any]) -> str:
    if got.shape != truth.shape:
        return f"shape {got.shape} where {truth.shape} belongs"
    wrong = np.argwhere(got != truth)
    at = tuple(wrong[0])
    return f"{len(wrong)} of {got.size} values, the first at {at}: {got[at]} where {truth[at]} belongs"


@dataclasses.dataclass(frozen=True)
class Work:
    """One row of the table.

    Attributes:
        name: As printed.
        batch: Rows drawn by a call; 0: the row is of `store`.
        calls: Calls in a timed block.
        limit: The operation's name in the limit program, if it has it.
        reward: Times the reward function that a draw calls, beside the limit, which calls none.
    """

    name: str
    batch: int
    calls: int
    limit: str | None = None
    reward: Turn | None = None


@dataclasses.dataclass(frozen=True)
class Scene:
    """One transform under comparison.

    Attributes:
        name: As on the command line and in the memory table.
        works: What is timed.
        drawers: Who takes part.
        share: The ring holds this share of `--steps`.
        limit: Source of the limit program.
        item: Bytes of a step in the copying program; 0: the program knows them.
    """

    name: str
    works: tuple[Work, ...]
    drawers: tuple[type[Drawer], ...]
    share: float = 1.0
    limit: Path = COPIES
    item: int = 0

    def steps(self, total: int) -> int:
        """Return the capacity of its rings."""
        return int(total * self.share)

    def sizes(self, steps: int) -> tuple[int, ...]:
        """Return the arguments of the limit program for rings of so many steps."""
        return (steps, self.item) if self.item else (steps,)

    def rows(self, drawers: list[Drawer], limit: Limit | None) -> Rows:
        """Return who takes turns at each row."""
        rows = {}
        for work in self.works:
            turns: dict[str, Turn] = {d.label: partial(_time_work, d, work) for d in drawers}
            if limit is not None and work.limit is not None:
                turns[LABEL] = limit_turn(limit, work.limit, work.calls)
                if work.reward is not None:
                    turns[REWARD] = work.reward
            rows[work.name] = turns
        return rows


def _time_work(drawer: Drawer, work: Work, seed: tuple[int, ...]) -> float:
    if work.batch == 0:
        return time_block(drawer.store, drawer.prepare_store(work.calls))
    seeds = np.random.default_rng(seed).integers(0, 2**31, work.calls).tolist()
    return time_block(partial(drawer.draw, work.batch), drawer.prepare_draw(seeds))


def installed(kinds: Iterable[Kind]) -> list[Kind]:
    """Return the classes whose library is installed, saying which are not."""
    present = []
    for kind in kinds:
        if importlib.util.find_spec(MODULES.get(kind.package, kind.package)) is None:
            print(f'{kind.label}: not installed: pip install "replaylab[{kind.extra}]"')
        else:
            present.append(kind)
    return present


def filled(make: Callable[[], Kind], steps: int, *inputs: Any) -> tuple[Kind, float | None]:
    """Return a new buffer, filled with these inputs, and by how many bytes a step the process grew meanwhile."""
    before = resident_bytes()
    buffer = make()
    buffer.fill(*inputs)
    after = resident_bytes()
    return buffer, None if before is None or after is None else (after - before) / steps


def build(kinds: list[type[Drawer]], steps: int, small: int) -> tuple[list[Drawer], dict[str, float | None]]:
    """Fill and verify one ring of each library; return them and the bytes a step that each takes."""
    drawers: list[Drawer] = []
    memory: dict[str, float | None] = {}
    for kind in kinds:
        filled(lambda kind=kind: kind(small), small)[0].verify()  # imports, compiles
        drawer, memory[kind.label] = filled(lambda kind=kind: kind(steps), steps)
        drawer.verify()
        drawers.append(drawer)
        print(f"{kind.label} {kind.version()}: filled and verified", flush=True)
    return drawers, memory
