"""The order of chunks that learn from the draws of others: what to run, what to record, what waits."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from replaylab.errors import SpecError
from replaylab.study.plan import Chunk
from replaylab.study.results.folder import StudyFolder


def refuse_lone(folder: StudyFolder, planned: Iterable[Chunk]) -> None:
    """Raise if a chunk would learn from its own draws because it has a single seed.

    The study file leaves no seed alone (`check_tapes`); chunks that are there already, smaller ones of a study that
    has grown, or seeds that were trained alone because one of them raised, may.

    Raises:
        SpecError: one has; the message names it, and what to do.
    """
    lone = [p for p in planned if p.tape_of is not None and len(p.seeds) == 1]
    if not lone:
        return
    parts = [part for p in lone for part in (p, p.tape_of) if part is not None]
    files = [file.name for file in dict.fromkeys(map(folder.file_of, parts)) if file.is_file()]
    fix = (
        f"remove {', '.join(files)} from its runs/, so that these seeds are trained together again"
        if files
        else ("run more `seeds`, which then join it")
    )
    raise SpecError(
        f"{lone[0].label} must learn from the draws of another seed of its chunk, but the chunks that "
        f"{folder.path} holds leave it alone; {fix}, or give another folder (--out)"
    )


def divided(folder: StudyFolder) -> tuple[list[Chunk], list[Chunk], list[Chunk]]:
    """Return the chunks to run, those to skip, and those of the former that have rows; nothing is written.

    A chunk with rows is run again, with the same rows, if a missing one learns from its draws and its tape is missing
    or damaged.
    """
    chunks = folder.chunks
    missing = [p for p in chunks if not folder.file_of(p).is_file()]
    drawn = {p.tape_of.id for p in missing if p.tape_of is not None and not _sound(folder.tape_file(p.tape_of))}
    wanted = {p.id for p in missing} | drawn
    todo, skipped = ([p for p in chunks if (p.id in wanted) == chosen] for chosen in (True, False))
    return todo, skipped, [p for p in todo if folder.file_of(p).is_file()]


def _sound(tape: Path) -> bool:
    if not tape.is_file():
        return False
    try:
        with zipfile.ZipFile(tape) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


class TapeOrder:
    """The chunks whose draws are recorded, and the chunks that wait for them.

    Args:
        todo: What is to be trained.
        recorded: Ids of those whose draws are already stored.
    """

    def __init__(self, todo: Sequence[Chunk], recorded: set[str]) -> None:
        sources = [p.tape_of.id for p in todo if p.tape_of is not None]
        self._learning = Counter(sources)
        self._wanted = set(sources) - recorded
        self._waiting: dict[str, list[Chunk]] = {}

    def records(self, chunk: Chunk) -> bool:
        """Return whether a chunk's draws are wanted."""
        return chunk.id in self._wanted

    def hold(self, chunk: Chunk) -> bool:
        """Return whether a chunk has to wait for another one, and keep it until then."""
        source = chunk.tape_of
        if source is None or source.id not in self._wanted:
            return False
        self._waiting.setdefault(source.id, []).append(chunk)
        return True

    def released(self, source: Chunk) -> list[Chunk]:
        """Return those that waited for a chunk, which has ended."""
        return self._waiting.pop(source.id, [])

    def done(self, chunk: Chunk) -> bool:
        """Record that a chunk has finished; return whether it was the last that learns from its tape."""
        if chunk.tape_of is None:
            return False
        self._learning[chunk.tape_of.id] -= 1
        return self._learning[chunk.tape_of.id] == 0
