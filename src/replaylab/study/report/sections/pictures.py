"""Videos of greedy play, and the frames that each strategy's replay holds and replays most."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from markupsafe import Markup

from replaylab.files.atomic import write_bytes
from replaylab.number_format import counted
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report.page import KEYS, Page, ReportFigure, Section, keys_of
from replaylab.study.results.store import NOT_MADE, SHEET, VIDEO, read_pictures

if TYPE_CHECKING:
    from replaylab.study.plan.chunks import Chunk
    from replaylab.watch import ReplaySheet

MOST_BYTES = 700_000
"""Bytes of sheets and moving pictures on a page at most, because people open it on phones."""

_NUMBERS = ("id", "age", "replays", "likelihood", "td_error", "reward", "ended", "action")
ChunkPictures: TypeAlias = "tuple[Chunk, dict[str, bytes]]"
"""A chunk, and the pictures of its first seed."""


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return videos and sheets; None if the workers returned none."""
    made = list(_pictures(page))
    if not made:
        return None
    shown, left, used = list[ReportFigure](), 0, 0
    for figure in _sheets(page, made):
        size = sum(len(panel) for _, panels in figure.groups for panel in panels)
        if used + size > MOST_BYTES:
            left += 1
            continue
        shown.append(figure)
        used += size
    shown += _videos(page, MOST_BYTES - used)
    beside = " The files beside it have them." if page.figure_files else ""
    note = f"{counted(left, 'more figure')} would make this page heavy.{beside}" if left else ""
    about = "Of the first seed of each strategy, when its training had ended."
    return Section("Videos", shown, [about], points=list(_not_made(page, made)), note=note)


def _pictures(page: Page) -> Iterator[ChunkPictures]:
    """Yield the pictures of the first chunk of each strategy, environment and learner that is there."""
    seen = set()
    for chunk in page.study.present:
        if chunk.key not in seen and (pictures := read_pictures(page.study.file_of(chunk))):
            yield chunk, pictures
        seen.add(chunk.key)


def _not_made(page: Page, made: Sequence[ChunkPictures]) -> Iterator[str]:
    """Yield what could not be made, with the reason."""
    for chunk, pictures in made:
        for name, reason in pictures.items():
            if name.endswith(NOT_MADE):
                what = "sheet" if name.startswith(SHEET) else "moving picture"
                where = f"{page.spec.title_of(chunk.strategy)}, {page.spec.place_of(*chunk.key[:2])}"
                yield f"No {what} of {where}: {reason.decode()}"


def _cells(made: Sequence[ChunkPictures], name: str) -> dict[tuple[str, str], list[ChunkPictures]]:
    """Return those that have a picture of this name, by environment and learner."""
    cells: dict[tuple[str, str], list[ChunkPictures]] = {}
    for chunk, pictures in made:
        if name in pictures:
            cells.setdefault(chunk.key[:2], []).append((chunk, pictures))
    return cells


def _sheets(page: Page, made: Sequence[ChunkPictures]) -> Iterator[ReportFigure]:
    from replaylab.watch import ReplaySheet, draw_sheets
    from replaylab.watch.sheet_drawing import KEY

    for number, (cell, of_cell) in enumerate(_cells(made, SHEET).items()):
        titles = [page.spec.title_of(chunk.strategy) for chunk, _ in of_cell]
        sheets = dict(zip(titles, (ReplaySheet.from_bytes(pictures[SHEET]) for _, pictures in of_cell), strict=True))
        keys = dict(zip(titles, ((*chunk.key, chunk.seeds[0]) for chunk, _ in of_cell), strict=True))
        stored = "; ".join(f"{title} (seed {keys[title][-1]}): {sheet}" for title, sheet in sheets.items())
        yield page.figure(
            f"replayed_frames{f'_{number + 1}' if number else ''}",
            f"What is replayed: {page.spec.place_of(*cell)}",
            f"{stored}. {KEY} Steps never replayed, which have no priority from feedback, are in no row.",
            draw_sheets(sheets),
            (*KEYS, "seed", "row", *_NUMBERS),
            ((*keys[title], *numbers) for title, sheet in sheets.items() for numbers in _sheet_rows(sheet)),
        )


def _sheet_rows(sheet: ReplaySheet) -> Iterator[tuple[Any, ...]]:
    for row in sheet.rows:
        for numbers in zip(*(getattr(row, name).tolist() for name in _NUMBERS), strict=True):
            yield (row.title, *numbers)


def _videos(page: Page, room: int) -> Iterator[ReportFigure]:
    """Yield the moving pictures of each environment and learner, each of which is a file beside the page, too.

    Args:
        page: The page.
        room: Bytes of them that the page may hold: the first seed's of a strategy, where it fits.
    """
    made = [
        (chunk, pictures)
        for chunk in page.study.present
        if chunk.watch.video and VIDEO in (pictures := read_pictures(page.study.file_of(chunk)))
    ]
    keys = keys_of("greedy_play", [f"{' '.join(chunk.key)} {chunk.seeds[0]}" for chunk, _ in made])
    files = {chunk.id: f"figures/{key}.webp" for (chunk, _), key in zip(made, keys, strict=True)}
    for number, (cell, of_cell) in enumerate(_cells(made, VIDEO).items()):
        panels: dict[str, list[Markup]] = {}
        for chunk, pictures in of_cell:
            write_bytes(page.out / files[chunk.id], pictures[VIDEO])
            panel = panels.setdefault(page.spec.title_of(chunk.strategy), [])
            if not panel and len(moving := _moving(pictures[VIDEO], chunk)) <= room:
                room -= len(moving)
                panel.append(moving)
            panel.append(Markup('<p><a href="{}">seed {}</a></p>').format(files[chunk.id], chunk.seeds[0]))
        yield ReportFigure(
            f"greedy_play{f'_{number + 1}' if number else ''}",
            f"Greedy play: {page.spec.place_of(*cell)}",
            "One episode without exploration, or its first steps: as many as watch.video said when the run was "
            "trained. Each seed’s is in a file beside this page.",
            (),
            list(panels.items()),
            "small",
            folded=False,
            files=(),
        )


def _moving(content: bytes, chunk: Chunk) -> Markup:
    label = escape(f"Greedy play of {chunk.strategy}, seed {chunk.seeds[0]}, in {chunk.environment}")
    data = base64.b64encode(content).decode()
    return Markup(f'<img alt="{label}" loading="lazy" src="data:image/webp;base64,{data}">')
