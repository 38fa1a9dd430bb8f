"""Videos of greedy play, and the frames that each strategy's replay holds and replays most."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

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
Cell = tuple[str, str]


@dataclass(frozen=True)
class ChunkPictures:
    """The pictures of a chunk's first seed."""

    chunk: Chunk
    pictures: dict[str, bytes]

    @property
    def cell(self) -> Cell:
        """Environment and learner."""
        return self.chunk.environment, self.chunk.learner


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
            yield ChunkPictures(chunk, pictures)
        seen.add(chunk.key)


def _not_made(page: Page, made: Sequence[ChunkPictures]) -> Iterator[str]:
    """Yield what could not be made, with the reason."""
    for of_seed in made:
        for name, reason in of_seed.pictures.items():
            if name.endswith(NOT_MADE):
                what = "sheet" if name.startswith(SHEET) else "moving picture"
                where = f"{page.spec.title_of(of_seed.chunk.strategy)}, {page.spec.place_of(*of_seed.cell)}"
                yield f"No {what} of {where}: {reason.decode()}"


def _cells(made: Sequence[ChunkPictures], name: str) -> dict[Cell, list[ChunkPictures]]:
    """Return those that have a picture of this name, by environment and learner."""
    cells: dict[Cell, list[ChunkPictures]] = {}
    for of_seed in made:
        if name in of_seed.pictures:
            cells.setdefault(of_seed.cell, []).append(of_seed)
    return cells


def _sheets(page: Page, made: Sequence[ChunkPictures]) -> Iterator[ReportFigure]:
    from replaylab.watch import ReplaySheet, draw_sheets
    from replaylab.watch.sheet_drawing import KEY

    for number, (cell, of_cell) in enumerate(_cells(made, SHEET).items()):
        titled = {page.spec.title_of(of_seed.chunk.strategy): of_seed for of_seed in of_cell}
        sheets = {title: ReplaySheet.from_bytes(of_seed.pictures[SHEET]) for title, of_seed in titled.items()}
        keys = {title: (*of_seed.chunk.key, of_seed.chunk.seeds[0]) for title, of_seed in titled.items()}
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
        ChunkPictures(chunk, pictures)
        for chunk in page.study.present
        if chunk.watch.video and VIDEO in (pictures := read_pictures(page.study.file_of(chunk)))
    ]
    keys = keys_of("greedy_play", [_named(of_seed.chunk) for of_seed in made])
    files = {of_seed.chunk.id: f"figures/{key}.webp" for of_seed, key in zip(made, keys, strict=True)}
    for number, (cell, of_cell) in enumerate(_cells(made, VIDEO).items()):
        panels: dict[str, list[Markup]] = {}
        for of_seed in of_cell:
            chunk, file = of_seed.chunk, files[of_seed.chunk.id]
            write_bytes(page.out / file, of_seed.pictures[VIDEO])
            panel = panels.setdefault(page.spec.title_of(chunk.strategy), [])
            if not panel and len(moving := _moving(of_seed.pictures[VIDEO], chunk)) <= room:
                room -= len(moving)
                panel.append(moving)
            panel.append(Markup('<p><a href="{}">seed {}</a></p>').format(file, chunk.seeds[0]))
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


def _named(chunk: Chunk) -> str:
    return f"{chunk.environment} {chunk.learner} {chunk.strategy} {chunk.seeds[0]}"


def _moving(content: bytes, chunk: Chunk) -> Markup:
    label = escape(f"Greedy play of {chunk.strategy}, seed {chunk.seeds[0]}, in {chunk.environment}")
    data = base64.b64encode(content).decode()
    return Markup(f'<img alt="{label}" loading="lazy" src="data:image/webp;base64,{data}">')
