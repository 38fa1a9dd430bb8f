"""Figures of a buffer now: how old its steps are, and how evenly they are and were drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.errors import ConfigError
from replaylab.measures.buffer_usage import gini
from replaylab.replay.data.schedules import as_schedule
from replaylab.replay.introspection.introspective import Introspective
from replaylab.replay.samplers.sampler import Sampler
from replaylab.replay.transforms.sequence import Sequence

Count = int | npt.NDArray[np.int64]
Figure = float | npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ReplayStats:
    """Figures of a buffer, from `ReplayBuffer.stats`.

    With replicas every figure is an array (R,). Age is counted in steps stored since, in the same replica: the
    newest step has age 0. P is the sampler's law over the N stored steps; with `Sequence`, over the sequences, which
    are as old as their oldest stored step. Where nothing is stored, or nothing can be drawn, what depends on it is NaN.

    Attributes:
        size: N, steps stored.
        capacity: C.
        added: Steps given so far.
        cycles: ⌊added / C⌋, how often the buffer was filled.
        oldest_age: Age of the oldest stored step.
        mean_age: Mean age of the stored steps.
        mean_drawn_age: Σ P·age, the mean age of a row that is drawn now. None: as for `effective_size`.
        effective_size: 1 / ΣP², how many steps drawn uniformly would repeat as often; N if the law is uniform. None
            where the law depends on a ``batch_size`` or ``progress`` that was not given, or the sampler has no law.
        entropy: −ΣP·ln P, in nats. None: as for `effective_size`.
        evenness: entropy / ln N (N sequences), 1 if the law is uniform. None: as for `effective_size`.
        largest_priority: The largest priority as the law takes it: p^α, or |δ| where the law goes by ranks. None
            where the sampler has none; of a mixture, the first part's that has some.
        total_priority: Their sum.
        samples: Rows drawn so far, of steps that are not stored any more, too.
        samples_per_insert: samples / added.
        mean_replays: How often a stored step was drawn, on average. None, as the next three, unless the buffer was
            made with ``count_replays=True``.
        max_replays: How often the one drawn most often was.
        never_replayed: Share of the stored steps that were never drawn.
        replay_gini: Gini coefficient of the stored steps' replay counts: 0 if all are equal, near 1 if a few steps
            had nearly all of them.
        stale_updates: Ids given to `update_priorities` whose step was not stored any more.
    """

    size: Count
    capacity: int
    added: Count
    cycles: Count
    oldest_age: Figure
    mean_age: Figure
    mean_drawn_age: Figure | None
    effective_size: Figure | None
    entropy: Figure | None
    evenness: Figure | None
    largest_priority: Figure | None
    total_priority: Figure | None
    samples: Count
    samples_per_insert: Figure
    mean_replays: Figure | None
    max_replays: Figure | None
    never_replayed: Figure | None
    replay_gini: Figure | None
    stale_updates: Count

    def __repr__(self) -> str:
        named = [(field.name, getattr(self, field.name)) for field in fields(self)]
        width = max(len(name) for name, _ in named)
        many = isinstance(self.size, np.ndarray)
        head = f"ReplayStats of {np.size(self.size)} replicas: mean (least to most)" if many else "ReplayStats"
        return "\n".join([head, *(f"  {name:{width}}  {_text(value)}" for name, value in named)])


def stats_of(buffer: Introspective, batch_size: int | None, progress: float | None) -> ReplayStats:
    """Return a buffer's figures; see `ReplayBuffer.stats`."""
    state = buffer._core.state()
    sampler = buffer.sampler
    priorities = f"sampler.{sampler.core_config().priorities}" if sampler.keeps_priorities else None
    replicas = [_Replica(state, f"replica{r}.", buffer.capacity, priorities) for r in range(buffer.replicas or 1)]
    laws: list[tuple[Floats, Floats]] | list[None] = [None] * len(replicas)
    if _law_is_known(sampler, batch_size, progress):
        laws = _laws(buffer, replicas, batch_size, progress)
    found = [one.figures() | _law_figures(law) for one, law in zip(replicas, laws, strict=True)]
    columns = {name: [one[name] for one in found] for name in found[0]}
    return ReplayStats(
        capacity=buffer.capacity,
        **{name: _joined(column, buffer.replicas is not None) for name, column in columns.items()},
    )


def replay_counts(buffer: Introspective) -> list[npt.NDArray[np.int64]]:
    """Return how often each stored step was drawn, replica by replica, (N,) in the order of `stored_ids`.

    Raises:
        ConfigError: The buffer was made without ``count_replays=True``.
    """
    counts = [one.replays for one in _replicas(buffer)]
    if any(one is None for one in counts):
        raise ConfigError("replays are not counted; make the buffer with count_replays=True")
    return [one for one in counts if one is not None]


def stored_ids(buffer: Introspective) -> list[npt.NDArray[np.int64]]:
    """Return the ids of the stored steps, replica by replica, (N,), oldest first."""
    return [one.ids for one in _replicas(buffer)]


def _replicas(buffer: Introspective) -> list["_Replica"]:
    state = buffer._core.state()
    return [_Replica(state, f"replica{r}.", buffer.capacity) for r in range(buffer.replicas or 1)]


class _Replica:
    """One replica's part of the state that `save` would write."""

    def __init__(
        self, state: Mapping[str, npt.NDArray[Any]], prefix: str, capacity: int, priorities: str | None = None
    ) -> None:
        own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
        next_id = int(own["next_id"][0])
        first_id, given_before = own.get("cleared", (0, 0))
        self._capacity, self._size = capacity, min(next_id - int(first_id), capacity)
        if "used" in own:
            self._size = int(own["used"][0])
        since = int(own["offered"][0]) if "offered" in own else next_id - int(first_id)
        self._added = int(given_before) + since
        if "ids" in own:  # by slot, where any may hold any
            slots = np.argsort(own["ids"][: self._size])
            self.ids = own["ids"][slots]
        else:
            self.ids = np.arange(next_id - self._size, next_id)
            slots = self.ids % capacity
        self.ages = next_id - 1 - self.ids
        counts = own["replay_counts"]
        self.replays = counts[slots].astype(np.int64) if counts.size else None
        self._samples, self._stale = int(own["samples"][0]), int(own["stale"][0])
        self._priorities = None if priorities is None else own[priorities]

    def figures(self) -> dict[str, Any]:
        """Return what does not depend on the law."""
        some = self._size > 0
        priorities = None if self._priorities is None else np.maximum(self._priorities.astype(np.float64), 0.0)
        return {
            "size": self._size,
            "added": self._added,
            "cycles": self._added // self._capacity,
            "oldest_age": float(self.ages[0]) if some else np.nan,
            "mean_age": float(self.ages.mean()) if some else np.nan,
            "largest_priority": None if priorities is None else float(priorities.max()) if some else np.nan,
            "total_priority": None if priorities is None else float(priorities.sum()),
            "samples": self._samples,
            "samples_per_insert": self._samples / self._added if self._added else np.nan,
            **replay_figures(self.replays),
            "stale_updates": self._stale,
        }


def replay_figures(counts: npt.NDArray[np.int64] | None) -> dict[str, float | None]:
    """Return the figures of the stored steps' replay counts; None where they are not counted."""
    names = ("mean_replays", "max_replays", "never_replayed", "replay_gini")
    if counts is None:
        return dict.fromkeys(names)
    if not counts.size:
        return dict.fromkeys(names, np.nan)
    figures = (counts.mean(), counts.max(), (counts == 0).mean(), gini(counts))
    return dict(zip(names, map(float, figures), strict=True))


def _law_is_known(sampler: Sampler, batch_size: int | None, progress: float | None) -> bool:
    if not sampler.has_law:
        return False
    changes = any(low < high for low, high in (as_schedule(one).bounds for one in sampler.schedules))
    needs_progress = sampler.law_needs_progress and changes
    return not ((sampler.law_needs_batch_size and batch_size is None) or (needs_progress and progress is None))


def _laws(
    buffer: Introspective, replicas: list[_Replica], batch_size: int | None, progress: float | None
) -> list[tuple[Floats, Floats]]:
    """Return for each replica the chances of all it can draw, oldest first, and their ages."""
    ids = np.full((len(replicas), max(len(one.ids) for one in replicas)), -1, np.int64)
    if ids.size == 0:
        return [(np.zeros(0), np.zeros(0)) for _ in replicas]
    for row, one in zip(ids, replicas, strict=True):
        row[: len(one.ids)] = one.ids
    asked = ids if buffer.replicas is not None else ids[0]
    found = buffer.probabilities(asked, batch_size=batch_size, progress=progress).reshape(ids.shape)
    alone = ids >= 0
    if any(isinstance(one, Sequence) for one in buffer.transforms):  # a sequence is drawn by its first step's id
        alone &= buffer._core.blocks(asked, True).reshape(ids.shape) == ids
    return [
        (law[kept], one.ages[kept[: len(one.ids)]].astype(np.float64))
        for law, kept, one in zip(found, alone, replicas, strict=True)
    ]


def _law_figures(known: tuple[Floats, Floats] | None) -> dict[str, float | None]:
    names = ("mean_drawn_age", "effective_size", "entropy", "evenness")
    if known is None:
        return dict.fromkeys(names)
    law, ages = known
    if abs(law.sum() - 1.0) > 1e-6:  # nothing, or not enough, is stored
        return dict.fromkeys(names, np.nan)
    drawn = law[law > 0.0]
    entropy = max(float(-(drawn * np.log(drawn)).sum()), 0.0)
    evenness = entropy / float(np.log(len(law))) if len(law) > 1 else 1.0
    return dict(zip(names, (float(law @ ages), float(1.0 / (law @ law)), entropy, evenness), strict=True))


def _joined(column: list[Any], axis: bool) -> Any:
    """Return one figure of all replicas."""
    if not axis or column[0] is None:
        return column[0]
    return np.array(column, np.int64 if isinstance(column[0], int) else np.float64)


def _text(value: Any) -> str:
    if value is None:
        return "—"
    least, most = _number(np.min(value)), _number(np.max(value))
    return least if least == most else f"{_number(np.mean(value))} ({least} to {most})"


def _number(value: Any) -> str:
    whole = abs(value) >= 1000 or float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:,.4g}"
