"""Division of the seeds of a cell into chunks, given the chunks on disk."""

from __future__ import annotations

from collections.abc import Iterable

Seeds = tuple[int, ...]


def chunked(seeds: Seeds, size: int, present: Iterable[Seeds] = ()) -> list[Seeds]:
    """Return chunks that hold each seed once: the stored ones, and new ones for missing seeds.

    The seeds are divided every ``size``, in their order; where nothing is there, that is all. A chunk that is there is
    kept as it is, whatever its size, if no seed of it is unwanted or in a chunk kept before, large ones first; the
    seeds that a regular chunk then lacks make one new chunk. So more seeds run none twice, and running some of the new
    chunks leaves the others as they were. A chunk is used whole or not at all: where a seed of it is not wanted any
    more, its other seeds make new chunks, and run again.

    Example:
        >>> chunked((0, 1, 2, 3, 4), 4)
        [(0, 1, 2, 3), (4,)]
        >>> chunked((0, 1, 2, 3, 4, 5, 6, 7, 8), 4, present=[(0, 1, 2, 3), (4,)])
        [(0, 1, 2, 3), (4,), (5, 6, 7), (8,)]
        >>> chunked((0, 1, 2, 3, 4, 5), 4, present=[(0, 1, 2, 3), (4, 5, 6, 7)])
        [(0, 1, 2, 3), (4, 5)]
        >>> chunked((0, 1, 2, 3, 4, 5), 6, present=[(0, 1), (0, 1, 2, 3), (4, 5)])
        [(0, 1, 2, 3), (4, 5)]
    """
    regular = [seeds[i : i + size] for i in range(0, len(seeds), size)]
    candidates = set(present)
    missing = set(seeds)
    used = []
    for chunk in [c for c in regular if c in candidates] + sorted(candidates, key=lambda c: (-len(c), c)):
        if missing.issuperset(chunk):
            used.append(chunk)
            missing.difference_update(chunk)
    new = [tuple(seed for seed in chunk if seed in missing) for chunk in regular]
    return sorted(used + [chunk for chunk in new if chunk], key=lambda chunk: seeds.index(chunk[0]))
