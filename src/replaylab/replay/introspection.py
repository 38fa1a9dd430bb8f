"""Rows of a buffer by id and slot, its statistics, and its display as text and as a table."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError
from replaylab.machine import check_batch_memory, size_text
from replaylab.measures.buffer_usage import gini
from replaylab.replay.buffer_config import BufferConfig
from replaylab.replay.buffer_parts import BufferParts
from replaylab.replay.data.arrays import checked_progress, ids_array, positive
from replaylab.replay.data.batch import Batch
from replaylab.replay.data.schedules import changes
from replaylab.trees import without_missing

STYLE = (
    "font:13px/1.5 system-ui,sans-serif;color:inherit;display:inline-block;max-width:60em;padding:10px 14px;"
    "border:1px solid rgba(128,128,128,.4);border-radius:8px"
)

CELL = "text-align:left;vertical-align:top;padding:1px 18px 1px 0;background:none;border:0;color:inherit"

DIM = "opacity:.65"


def columns(parts: BufferParts) -> dict[str, Any]:
    """Return views of every field by slot; see `ReplayBuffer.columns`."""
    if (storage := parts.config.storage) is not None:
        raise ConfigError(
            f"`columns` shows rows by slot, which those in {storage} do not have; use get(ids), which copies"
        )
    views = parts.layout.unflatten(iter([parts.core.column(i) for i in range(len(parts.layout.flat))]))
    return {name: view for name, tree in views.items() if (view := without_missing(tree)) is not None}


def as_batch(parts: BufferParts, ids: npt.ArrayLike) -> Batch:
    """Return steps in the form of a drawn batch; see `ReplayBuffer.as_batch`."""
    rows, layout = ids_array(ids), parts.layout
    check_batch_memory(layout.batch_row_nbytes, rows.size)
    columns = parts.core.gather(rows, True, True)
    layout.relabel(columns)
    if layout.sequence is not None and rows.size:  # a sequence's id is that of its oldest stored step
        rows = parts.core.blocks(rows, True)[..., 0]
    return layout.batch(columns | {"weight": np.ones(rows.shape, np.float32), "id": rows})


Count = int | npt.NDArray[np.int64]
Figure = float | npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ReplayStats:
    """Figures of a buffer, from `ReplayBuffer.stats`.

    With replicas every figure is an array (R,). Age is counted in steps stored since, in the same replica: the
    newest step has age 0. P is the sampler's distribution over the N stored steps; with `Sequence`, over the
    sequences, which are as old as their oldest stored step. Where nothing is stored, or nothing can be drawn, what
    depends on it is NaN.

    Attributes:
        size: N, steps stored.
        capacity: C.
        added: Steps added so far.
        cycles: ⌊added / C⌋, how often the buffer was filled.
        oldest_age: Age of the oldest stored step.
        mean_age: Mean age of the stored steps.
        mean_drawn_age: Σ P·age, the mean age of a row that is drawn now. None: as for `effective_size`.
        effective_size: 1 / ΣP², how many steps drawn uniformly would repeat as often; N if the distribution is
            uniform. None where the distribution depends on a ``batch_size`` or ``progress`` that was not given, or the
            sampler has no closed form.
        entropy: −ΣP·ln P, in nats. None: as for `effective_size`.
        evenness: entropy / ln N (N sequences), 1 if the distribution is uniform. None: as for `effective_size`.
        largest_priority: The largest priority as the distribution uses it: p^α, or |δ| for distributions over ranks.
            None if the sampler has no priorities; of a mixture, that of the first part with priorities.
        total_priority: Sum of the priorities.
        samples: Rows drawn so far, of steps that are not stored any more, too.
        samples_per_insert: samples / added.
        mean_replays: How often a stored step was drawn, on average. None, as the next three, unless the buffer was
            made with ``count_replays=True``.
        max_replays: The largest replay count of a stored step.
        never_replayed: Share of the stored steps that were never drawn.
        replay_gini: Gini coefficient of the stored steps' replay counts: 0 if all are equal, near 1 if a few steps
            had nearly all of them.
        stale_updates: Ids given to `update_priorities`, `write` or `remove` whose step was not stored any more.
        moved_share: Share of the rows drawn so far for which `replaylab.research.ByStepsToEnd` found no step in their
            bin or a neighbouring one; 0 with `replaylab.research.Tape`. None with other samplers.
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
    moved_share: Figure | None

    def __repr__(self) -> str:
        named = [(field.name, getattr(self, field.name)) for field in fields(self)]
        width = max(len(name) for name, _ in named)
        many = isinstance(self.size, np.ndarray)
        head = f"ReplayStats of {np.size(self.size)} replicas: mean (least to most)" if many else "ReplayStats"
        return "\n".join([head, *(f"  {name:{width}}  {_text(value)}" for name, value in named)])


def stats_of(parts: BufferParts, batch_size: int | None, progress: float | None) -> ReplayStats:
    """Return a buffer's figures; see `ReplayBuffer.stats`."""
    batch_size = None if batch_size is None else positive("batch_size", batch_size, most=LARGEST_AXIS)
    if progress is not None:
        checked_progress(progress, parts.config.replicas)
    sampler = parts.config.sampler
    priorities = f"sampler.{sampler.core_config().priorities}" if sampler.keeps_priorities else None
    replicas = _replicas(parts, priorities)
    needs_progress = sampler.distribution_needs_progress and any(map(changes, sampler.schedules))
    requirements = [batch_size] * sampler.distribution_needs_batch_size + [progress] * needs_progress
    distributions: list[tuple[Floats, Floats]] | list[None] = [None] * len(replicas)
    if sampler.has_closed_form and None not in requirements:
        distributions = _distributions(parts, replicas, batch_size, progress)
    moved = [None] * len(replicas) if parts.engine.moved_share is None else parts.engine.moved_share.tolist()
    figures = [
        replica.figures() | distribution_figures(distribution) | {"moved_share": share}
        for replica, distribution, share in zip(replicas, distributions, moved, strict=True)
    ]
    if parts.config.replicas is None:
        return ReplayStats(capacity=parts.config.capacity, **figures[0])
    columns = {name: [replica_figures[name] for replica_figures in figures] for name in figures[0]}
    joined: dict[str, Any] = {name: None if column[0] is None else np.array(column) for name, column in columns.items()}
    return ReplayStats(capacity=parts.config.capacity, **joined)


def probabilities(
    parts: BufferParts, ids: npt.ArrayLike, batch_size: int | None, progress: float | None
) -> npt.NDArray[np.float64]:
    """Return the sampling probabilities of steps; see `ReplayBuffer.probabilities`."""
    sampler = parts.config.sampler
    if not sampler.has_closed_form:
        raise ConfigError(
            f"{type(sampler).__name__} has no closed form of its sampling probability: {sampler.no_closed_form}"
        )
    if batch_size is None:
        if sampler.distribution_needs_batch_size:
            raise ConfigError(
                f"the sampling distribution of {type(sampler).__name__} depends on the batch size; pass batch_size=..."
            )
        batch_size = 1
    batch_size = positive("batch_size", batch_size, most=LARGEST_AXIS)
    if progress is not None:
        checked_progress(progress, parts.config.replicas)  # also where it decides nothing
    scheduled = parts.layout.schedules.at(progress if sampler.distribution_needs_progress else 0.0)
    return parts.engine.probabilities(ids, batch_size, scheduled)


def replay_counts(parts: BufferParts) -> list[npt.NDArray[np.int64]]:
    """Return how often each stored step was drawn; see `ReplayBuffer.replay_counts`."""
    if not parts.config.count_replays:
        raise ConfigError("replays are not counted; make the buffer with count_replays=True")
    return [replica.replays for replica in _replicas(parts) if replica.replays is not None]


def stored_ids(parts: BufferParts) -> list[npt.NDArray[np.int64]]:
    """Return the ids of the stored steps, replica by replica, (N,), oldest first."""
    return [replica.ids for replica in _replicas(parts)]


def removed_ids(parts: BufferParts) -> list[npt.NDArray[np.int64]]:
    """Return the ids of removed steps whose slots no other step has filled, replica by replica, in ascending order."""
    return [replica.removed for replica in _replicas(parts)]


def _replicas(parts: BufferParts, priorities: str | None = None) -> list["_Replica"]:
    state, capacity = parts.core.state(), parts.config.capacity
    return [_Replica(state, f"replica{r}.", capacity, priorities) for r in range(parts.config.replicas or 1)]


class _Replica:
    """One replica's part of the state that `save` would write."""

    def __init__(
        self, state: Mapping[str, npt.NDArray[Any]], prefix: str, capacity: int, priorities: str | None = None
    ) -> None:
        arrays = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
        next_id = int(arrays["next_id"][0])
        first_id, given_before = arrays.get("cleared", (0, 0))
        used = int(arrays["used"][0]) if "used" in arrays else min(next_id - int(first_id), capacity)
        since = int(arrays["offered"][0]) if "offered" in arrays else next_id - int(first_id)
        self._added = int(given_before) + since
        if "ids" in arrays:  # by slot, in any order
            slots = np.argsort(arrays["ids"][:used])
            self.ids = arrays["ids"][slots]
        else:
            self.ids = np.arange(next_id - used, next_id)
            slots = self.ids % capacity
        stored = np.isin(slots, arrays.get("removed", ()), invert=True)
        self.removed, self.ids, slots = self.ids[~stored], self.ids[stored], slots[stored]
        self._capacity, self._size = capacity, len(self.ids)
        self.ages = next_id - 1 - self.ids
        counts = arrays["replay_counts"]
        self.replays = counts[slots].astype(np.int64) if counts.size else None
        self._samples, self._stale = int(arrays["samples"][0]), int(arrays["stale"][0])
        self._priorities = None if priorities is None else arrays[priorities]

    def figures(self) -> dict[str, Any]:
        """Return the figures that do not depend on the sampling distribution."""
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
    """Return the figures of the stored steps' replay counts; None if replays are not counted."""
    names = ("mean_replays", "max_replays", "never_replayed", "replay_gini")
    if counts is None:
        return dict.fromkeys(names)
    if not counts.size:
        return dict.fromkeys(names, np.nan)
    figures = (counts.mean(), counts.max(), (counts == 0).mean(), gini(counts))
    return dict(zip(names, map(float, figures), strict=True))


def _distributions(
    parts: BufferParts, replicas: list[_Replica], batch_size: int | None, progress: float | None
) -> list[tuple[Floats, Floats]]:
    """Return for each replica the probabilities and ages of the steps it can draw, oldest first."""
    ids = np.full((len(replicas), max(len(replica.ids) for replica in replicas)), -1, np.int64)
    if ids.size == 0:
        return [(np.zeros(0), np.zeros(0)) for _ in replicas]
    for row, replica in zip(ids, replicas, strict=True):
        row[: len(replica.ids)] = replica.ids
    requested = ids if parts.config.replicas is not None else ids[0]
    all_probabilities = probabilities(parts, requested, batch_size, progress).reshape(ids.shape)
    drawable = ids >= 0
    if parts.layout.sequence is not None:  # a sequence is drawn by its first step's id
        drawable &= parts.core.blocks(requested, True).reshape(ids.shape) == ids
    return [
        (distribution[mask], replica.ages[mask[: len(replica.ids)]].astype(np.float64))
        for distribution, mask, replica in zip(all_probabilities, drawable, replicas, strict=True)
    ]


def distribution_figures(drawable: tuple[Floats, Floats] | None) -> dict[str, float | None]:
    """Return the figures of the stored steps' probabilities and ages; None where the probabilities are not known."""
    names = ("mean_drawn_age", "effective_size", "entropy", "evenness")
    if drawable is None:
        return dict.fromkeys(names)
    distribution, ages = drawable
    if abs(distribution.sum() - 1.0) > 1e-6:  # nothing, or not enough, is stored
        return dict.fromkeys(names, np.nan)
    drawn = distribution[distribution > 0.0]
    entropy = max(float(-(drawn * np.log(drawn)).sum()), 0.0)
    evenness = entropy / float(np.log(len(distribution))) if len(distribution) > 1 else 1.0
    return dict(
        zip(
            names,
            (float(distribution @ ages), float(1.0 / (distribution @ distribution)), entropy, evenness),
            strict=True,
        )
    )


def _text(value: Any) -> str:
    if value is None:
        return "—"
    least, most = _number(np.min(value)), _number(np.max(value))
    return least if least == most else f"{_number(np.mean(value))} ({least} to {most})"


def _number(value: Any) -> str:
    without_digits = abs(value) >= 1000 or float(value).is_integer()
    return f"{value:,.0f}" if without_digits else f"{value:,.4g}"


def text(parts: BufferParts) -> str:
    """Return a buffer in one line."""
    config = parts.config
    axes = [f"{n} {name}" for n, name in ((config.replicas, "replicas"), (config.num_envs, "envs")) if n]
    facts = [f"{_stored(parts)} of {config.capacity:,} steps", *axes, size_text(parts.nbytes), repr(config.sampler)]
    facts += [f"{name}: {value}" for name, value in _options(config).items()]
    return f"ReplayBuffer({', '.join(facts)}, fields: {', '.join(config.flat)})"


def html(parts: BufferParts) -> str:
    """Return a buffer as a self-contained table in its page's own colours."""
    config = parts.config
    share = 100.0 * float(np.mean(parts.size)) / config.capacity
    bar = (
        '<div style="height:6px;margin:6px 0 8px;border-radius:3px;background:rgba(128,128,128,.25)">'
        f'<div style="height:6px;border-radius:3px;background:#3b82f6;width:{share:.1f}%"></div></div>'
    )
    rows = [("field", "shape", "dtype", "bytes a step")]
    for path, field in config.flat.items():
        free = config.next_obs == "derived" and path.split(".")[0] == "next_obs"
        rows.append((path, str(field.shape), str(field.dtype), "derived" if free else f"{field.nbytes:,}"))
    facts = {"sampler": repr(config.sampler), **_options(config)}
    facts |= {name: str(n) for name, n in (("replicas", config.replicas), ("environments", config.num_envs)) if n}
    step_nbytes = parts.nbytes / (config.capacity * (config.replicas or 1))
    facts["memory"] = f"{size_text(parts.nbytes)}, {step_nbytes:,.0f} bytes a step"
    return (
        f'<div style="{STYLE}"><div><b>ReplayBuffer</b> '
        f"{_stored(parts)} of {config.capacity:,} steps ({share:.0f}&nbsp;%)</div>{bar}"
        f"{_table([_row(row, 'th' if i == 0 else 'td') for i, row in enumerate(rows)])}"
        '<div style="height:8px"></div>'
        f"{_table([_row(fact, 'td', dim_first=True) for fact in facts.items()])}</div>"
    )


def _table(rows: list[str]) -> str:
    return f'<table style="border-collapse:collapse;margin:0;font:inherit;color:inherit">{"".join(rows)}</table>'


def _row(cells: tuple[str, ...], tag: str, dim_first: bool = False) -> str:
    dim = [tag == "th" or (dim_first and i == 0) for i in range(len(cells))]
    cell_texts = (
        f'<{tag} style="{CELL}{";font-weight:normal" if tag == "th" else ""}{";" + DIM if faint else ""}">'
        f"{escape(cell)}</{tag}>"
        for cell, faint in zip(cells, dim, strict=True)
    )
    return f'<tr style="background:none">{"".join(cell_texts)}</tr>'


def _options(config: BufferConfig) -> dict[str, str]:
    """Return the options other than the sampler that differ from their defaults."""
    shown = {
        "transforms": ", ".join(map(repr, config.transforms)),
        "retention": repr(config.retention),
        "autoreset": config.autoreset,
        "next_obs": config.next_obs,
    }
    return {name: text for name, text in shown.items() if getattr(config, name) != getattr(BufferConfig, name)}


def _stored(parts: BufferParts) -> str:
    sizes = np.unique(parts.size)
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
