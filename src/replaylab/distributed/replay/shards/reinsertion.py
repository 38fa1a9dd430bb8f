"""A part of what other shards had saved, stored anew: how a snapshot is restored onto another number of shards."""

from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.distributed.replay.shards.notes import ShardNotes, read_notes
from replaylab.distributed.replay.shards.transport import Declaration
from replaylab.distributed.replay.shards.trees import leaves, map_tree, spread
from replaylab.replay import AntiPrioritized, Fifo, ReplayBuffer

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
    runs = _dealt(declaration) if alone else _own(_episodes(declaration), declaration)
    taken: dict[int, tuple[dict[str, Any], Floats]] = {}
    for shard in range(len(declaration.absorbs)):
        taken |= _taken(_old(declaration, shard), {k: run.ids for k, run in enumerate(runs) if run.shard == shard})
    ids, priorities = [], []
    for number in range(len(runs)):
        columns, own = taken.pop(number)
        stored = _store(buffer, columns)
        if isinstance(buffer.retention, Fifo):
            notes.episodes[stored % buffer.capacity] = stored[0]
        ids.append(stored)
        priorities.append(own)
    if ids and buffer.sampler.wants_feedback:
        buffer.update_priorities(np.concatenate(ids), priority=np.concatenate(priorities))


def _old(declaration: Declaration, shard: int) -> ReplayBuffer:
    return ReplayBuffer.load(declaration.absorbs[shard], **declaration.given or {})


def _taken(old: ReplayBuffer, runs: dict[int, Ids]) -> dict[int, tuple[dict[str, Any], Floats]]:
    """Return the rows of runs, and their priorities."""
    return {number: (old.get(ids), _priorities(old, ids)) for number, ids in runs.items()}


def _dealt(declaration: Declaration) -> list[Run]:
    """Return this shard's steps where nothing looks around them: dealt out by age, so that all shards get as many."""
    stored = [_old(declaration, shard).stored_ids()[0] for shard in range(len(declaration.absorbs))]
    ages = [np.arange(len(ids)) / max(len(ids), 1) for ids in stored]
    ranks = np.argsort(np.argsort(np.concatenate(ages), kind="stable"), kind="stable")
    borders = np.cumsum([len(ids) for ids in stored])[:-1]
    runs = []
    for shard, (ids, age, rank) in enumerate(zip(stored, ages, np.split(ranks, borders), strict=True)):
        mine = np.flatnonzero(rank % declaration.parts == declaration.number)
        pieces = np.split(mine, range(PIECE, len(mine), PIECE))
        runs += [Run(float(age[piece[0]]), shard, ids[piece]) for piece in pieces if len(piece)]
    return sorted(runs)


def _episodes(declaration: Declaration) -> list[Run]:
    """Return all shards' steps episode by episode, oldest first."""
    return sorted(run for shard in range(len(declaration.absorbs)) for run in _episodes_of(declaration, shard))


def _episodes_of(declaration: Declaration, shard: int) -> list[Run]:
    """Return a shard's steps episode by episode."""
    old = _old(declaration, shard)
    (ids,) = old.stored_ids()
    number = read_notes(Path(declaration.absorbs[shard]), old.next_id).episodes[ids % old.capacity]
    order = np.argsort(number, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
    return [Run(float(places[0]) / len(ids), shard, ids[places]) for places in parts if len(places)]


def _own(runs: list[Run], declaration: Declaration) -> list[Run]:
    """Return those of this shard: each goes to the one that has fewest steps so far."""
    counts, mine = [0] * declaration.parts, []
    for run in runs:
        part = counts.index(min(counts))
        counts[part] += len(run.ids)
        if part == declaration.number:
            mine.append(run)
    return mine


def _store(buffer: ReplayBuffer, columns: dict[str, Any]) -> Ids:
    """Store steps of one episode, as one environment's, and return the ids."""
    buffer.end_episode()
    length = len(next(leaves(columns)))
    envs = buffer.num_envs
    rows = max(1, ROWS // (envs or 1))
    found = []
    for start in range(0, length, rows):
        chunk = map_tree(itemgetter(slice(start, start + rows)), columns)
        # In this mode an ended step's next_obs is taken from here, where it is the true last one already.
        final_obs = chunk["next_obs"] if buffer.autoreset == "same_step" else None
        if envs is None:
            found.append(buffer.extend(final_obs=final_obs, **chunk))
            continue
        first = itemgetter((slice(None), None))  # of environment 0
        chunk, final_obs = (spread(map_tree(first, one), np.zeros(1, np.int64), envs) for one in (chunk, final_obs))
        where = np.zeros((min(rows, length - start), envs), np.bool_)
        where[:, 0] = True
        found.append(buffer.extend(where=where, final_obs=final_obs, **chunk)[:, 0])
    buffer.end_episode()
    return np.concatenate(found)


def _priorities(buffer: ReplayBuffer, ids: Ids) -> Floats:
    """Return p of stored steps, of the law P(i) = p^α / Σ p^α."""
    totals = buffer.law_totals()
    assert totals is not None
    masses = buffer.probabilities(ids) * totals.total
    alpha = getattr(buffer.sampler, "alpha", 1.0)
    exponent = -alpha if isinstance(buffer.sampler, AntiPrioritized) else alpha
    if exponent == 0.0:
        return np.asarray(masses)
    priorities: Floats = np.where(masses > 0.0, np.power(np.where(masses > 0.0, masses, 1.0), 1.0 / exponent), 0.0)
    return priorities
