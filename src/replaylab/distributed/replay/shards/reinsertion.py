"""A part of what other shards had saved, stored again: how a snapshot is restored onto another number of shards."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.notes import ShardNotes, read_notes
from replaylab.distributed.replay.shards.transport import Declaration
from replaylab.replay import Fifo, ReplayBuffer
from replaylab.research import AntiPrioritized
from replaylab.trees import leaves, map_leaves, take

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ROWS = 1024
"""Rows, made up ones included, that are stored at once."""


PIECE = 64
"""Steps that stay together where nothing looks around them."""


class Run(NamedTuple):
    """Steps that stay together: consecutive ones of an episode, in one of the old shards.

    Attributes:
        age: Where they lie among its steps, from 0, the oldest, to 1.
        shard: Which of the old shards, by its place in the list.
        ids: Its ids for them.
    """

    age: float
    shard: int
    ids: Ids


def absorb(buffer: ReplayBuffer, notes: ShardNotes, declaration: Declaration) -> None:
    """Store this shard's part of the steps in other shards' snapshots, with their priorities, oldest first.

    Every new shard reads all the snapshots, and finds by the same rule which steps are its own. It reads them twice, so
    that it never holds more than one of them, and its own part.
    """
    if not declaration.absorbs:
        return
    alone = not buffer.transforms and buffer.next_obs == "stored"
    runs = _dealt(declaration) if alone else _runs_of_shard(_episodes(declaration), declaration)
    steps_by_run: dict[int, tuple[dict[str, Any], Floats]] = {}
    for shard in range(len(declaration.absorbs)):
        old = _old(declaration, shard)
        ids_by_run = {number: run.ids for number, run in enumerate(runs) if run.shard == shard}
        steps_by_run |= {number: (old.get(ids), _priorities(old, ids)) for number, ids in ids_by_run.items()}
        del old  # before the next one is read
    ids, priorities = [], []
    for number in range(len(runs)):
        columns, run_priorities = steps_by_run.pop(number)
        stored = _store(buffer, columns)
        if isinstance(buffer.retention, Fifo):
            notes.episodes[stored % buffer.capacity] = stored[0]
        ids.append(stored)
        priorities.append(run_priorities)
    if ids and buffer.sampler.wants_feedback:
        buffer.update_priorities(np.concatenate(ids), priority=np.concatenate(priorities))


def _old(declaration: Declaration, shard: int) -> ReplayBuffer:
    return ReplayBuffer.load(declaration.absorbs[shard], continue_episodes=True, **declaration.load_options or {})


def _dealt(declaration: Declaration) -> list[Run]:
    """Return this shard's steps where nothing looks around them: dealt out by age, so that all shards get as many."""
    stored = [_old(declaration, shard).stored_ids()[0] for shard in range(len(declaration.absorbs))]
    ages = [np.arange(len(ids)) / max(len(ids), 1) for ids in stored]
    ranks = np.argsort(np.argsort(np.concatenate(ages), kind="stable"), kind="stable")
    borders = np.cumsum([len(ids) for ids in stored])[:-1]
    runs = []
    for shard, (ids, age, rank) in enumerate(zip(stored, ages, np.split(ranks, borders), strict=True)):
        positions = np.flatnonzero(rank % declaration.parts == declaration.number)
        pieces = np.split(positions, range(PIECE, len(positions), PIECE))
        runs += [Run(float(age[piece[0]]), shard, ids[piece]) for piece in pieces if len(piece)]
    return sorted(runs)


def _episodes(declaration: Declaration) -> list[Run]:
    """Return all shards' steps episode by episode, oldest first."""
    runs: list[Run] = []
    for shard, folder in enumerate(declaration.absorbs):
        old = _old(declaration, shard)
        (ids,) = old.stored_ids()
        number = read_notes(Path(folder), old.next_id).episodes[ids % old.capacity]
        del old  # before the next one is read
        order = np.argsort(number, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
        runs += [Run(float(slots[0]) / len(ids), shard, ids[slots]) for slots in parts if len(slots)]
    return sorted(runs)


def _runs_of_shard(runs: list[Run], declaration: Declaration) -> list[Run]:
    """Return the runs of this shard: each run goes to the shard that has fewest steps so far."""
    counts, chosen = [0] * declaration.parts, []
    for run in runs:
        part = counts.index(min(counts))
        counts[part] += len(run.ids)
        if part == declaration.number:
            chosen.append(run)
    return chosen


def spread(tree: Any, envs: npt.NDArray[np.int64], count: int) -> Any:
    """Return columns ``T e *shape`` of some environments as those of all, ``T E *shape``: 0 for the others."""

    def widen(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wide = np.zeros((len(leaf), count, *leaf.shape[2:]), leaf.dtype)
        wide[:, envs] = leaf
        return wide

    return map_leaves(widen, tree)


def _store(buffer: ReplayBuffer, columns: dict[str, Any]) -> Ids:
    """Store steps of one episode, as one environment's, and return the ids."""
    buffer.end_episode()
    length = len(next(leaves(columns)))
    envs = buffer.num_envs
    rows = max(1, ROWS // (envs or 1))
    ids = []
    for start in range(0, length, rows):
        chunk = take(columns, slice(start, start + rows))
        # In this mode an ended step's next_obs is taken from here, where it is the true last one already.
        final_obs = chunk["next_obs"] if buffer.autoreset == "same_step" else None
        if envs is None:
            ids.append(buffer.extend(final_obs=final_obs, **chunk))
            continue
        chunk, final_obs = (
            spread(take(steps, np.s_[:, None]), np.zeros(1, np.int64), envs) for steps in (chunk, final_obs)
        )
        where = np.zeros((min(rows, length - start), envs), np.bool_)
        where[:, 0] = True
        ids.append(buffer.extend(where=where, final_obs=final_obs, **chunk)[:, 0])
    buffer.end_episode()
    return np.concatenate(ids)


def _priorities(buffer: ReplayBuffer, ids: Ids) -> Floats:
    """Return p of stored steps, of the sampling distribution P(i) = p^α / Σ p^α."""
    totals = buffer.sampling_totals()
    assert totals is not None
    masses = buffer.probabilities(ids) * totals.total
    alpha = getattr(buffer.sampler, "alpha", 1.0)
    exponent = -alpha if isinstance(buffer.sampler, AntiPrioritized) else alpha
    if exponent == 0.0:
        return np.asarray(masses)
    priorities: Floats = np.where(masses > 0.0, np.power(np.where(masses > 0.0, masses, 1.0), 1.0 / exponent), 0.0)
    return priorities
