"""Videos of greedy play."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from markupsafe import Markup

from replaylab.files.atomic import write_bytes
from replaylab.study.analysis.comparisons import ComparisonResults
from replaylab.study.report.page import Page, ReportFigure, Section, keys_of
from replaylab.study.results.store import read_video

if TYPE_CHECKING:
    from replaylab.study.plan import Chunk

MOST_BYTES = 700_000
"""Largest number of bytes of videos on a page, because people open it on phones."""

ChunkVideo: TypeAlias = "tuple[Chunk, bytes | str | None]"
"""A chunk with the video of its first seed, or with the reason why there is none."""


def section(page: Page, _: ComparisonResults) -> Section | None:
    """Return the videos; None if the study asks for none."""
    videos = [(chunk, read_video(page.study.file_of(chunk))) for chunk in page.study.present if chunk.watch.video]
    figures, points = list(_figures(page, videos)), list(_not_made(page, videos))
    if not figures and not points:
        return None
    about = "Of the first seed of each strategy, when its training had ended."
    return Section("Videos", figures, [about], points=points)


def _not_made(page: Page, videos: Sequence[ChunkVideo]) -> Iterator[str]:
    """Yield for each cell why the video of its first chunk could not be made."""
    seen = set()
    for chunk, video in videos:
        if chunk.key not in seen and isinstance(video, str):
            yield f"No video of {page.spec.title_of(chunk.strategy)}, {page.spec.place_of(*chunk.key[:2])}: {video}"
        seen.add(chunk.key)


def _figures(page: Page, videos: Sequence[ChunkVideo]) -> Iterator[ReportFigure]:
    """Yield the videos of each environment and learner; each of them is also a file beside the page."""
    room = MOST_BYTES
    shown = [(chunk, video) for chunk, video in videos if isinstance(video, bytes)]
    cells: dict[tuple[str, str], list[tuple[Chunk, bytes]]] = {}
    for chunk, video in shown:
        cells.setdefault(chunk.key[:2], []).append((chunk, video))
    keys = keys_of("greedy_play", [f"{' '.join(chunk.key)} {chunk.seeds[0]}" for chunk, _ in shown])
    files = {chunk.id: f"figures/{key}.webp" for (chunk, _), key in zip(shown, keys, strict=True)}
    for number, (cell, of_cell) in enumerate(cells.items()):
        panels: dict[str, list[Markup]] = {}
        for chunk, video in of_cell:
            write_bytes(page.out / files[chunk.id], video)
            panel = panels.setdefault(page.spec.title_of(chunk.strategy), [])
            if not panel and len(moving := _moving(video, chunk)) <= room:
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
