"""Drawings of replay sheets: a panel for each row, a frame for each step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

from replaylab.arguments import mapping, takes, text
from replaylab.errors import ConfigError
from replaylab.number_format import compact, signed, signed_decimals, significant
from replaylab.plotting import palette
from replaylab.plotting.drawing import SMALL, Drawing, Panel, PanelGroup, new_panel, shortened, write
from replaylab.plotting.svg import style
from replaylab.watch.replay_sheet import ReplaySheet, ShownSteps

KEY = (
    "×: how likely the step is drawn next, as a multiple of uniform draws. Age: steps stored since. δ: its TD error "
    "now. r: its reward; ■: its episode ended there."
)
"""Legend of the marks below a frame."""

_ACROSS, _GAP = 3, 7
_SIDE = (SMALL - (_ACROSS - 1) * _GAP) // _ACROSS
_HEAD, _LINE, _SIZE = 24, 12, 9.5
_LINES = 5


@takes(sheets=mapping, note=text)
def draw_sheets(sheets: Mapping[str, ReplaySheet], *, note: str = "") -> Drawing:
    """Return sheets as a drawing, one under the other; `save` writes it as SVG or PNG.

    Args:
        sheets: Sheets by title.
        note: Text below all sheets.

    Raises:
        ConfigError: There is no sheet, or a value is not a sheet.
    """
    if not sheets or not all(isinstance(sheet, ReplaySheet) for sheet in sheets.values()):
        raise ConfigError("`sheets` must be one or more sheets by title, as {'Pong': replay_sheet(...)}")
    with style():
        groups = [PanelGroup(title, [_panel(row) for row in sheet.rows]) for title, sheet in sheets.items()]
    return Drawing(groups, axes=note)


def _panel(row: ShownSteps) -> Panel:
    height, width = row.frames.shape[1:3]
    tall = round(_SIDE * height / width)
    below = _LINES * _LINE + 6
    rows = -(-len(row) // _ACROSS)
    figure, axes = new_panel(SMALL, _HEAD + rows * (tall + below), left=0, right=0, top=0, bottom=0)
    axes.remove()
    write(figure, row.title, 0, 14, color=palette.INK, size=12.5)
    for i in range(len(row)):
        down_by, column = divmod(i, _ACROSS)
        left, top = column * (_SIDE + _GAP), _HEAD + down_by * (tall + below)
        frame, (across, down) = row.frames[i], figure.get_size_inches() * 72
        place = figure.add_axes((left / across, 1 - (top + tall) / down, _SIDE / across, tall / down))
        place.imshow(frame, cmap="gray", vmin=0, vmax=255, interpolation="none", aspect="auto", clip_on=False)
        place.set_axis_off()
        for j, line in enumerate(_words(row, i)):
            color = palette.MUTED if j else palette.INK
            write(figure, shortened(line, _SIDE, _SIZE), left, top + tall + (j + 1) * _LINE, color=color, size=_SIZE)
    return Panel(row.title, figure)


def _words(row: ShownSteps, i: int) -> list[str]:
    """Return the lines below a step's frame; unknown numbers are left out."""
    likelihood, replays, error = float(row.likelihood[i]), int(row.replays[i]), float(row.td_error[i])
    first = [] if isnan(likelihood) else [f"{significant(likelihood)}×"]
    counted = [] if replays < 0 else ["1 replay" if replays == 1 else f"{replays:,} replays"]
    counts = [*counted, *first] if row.title == "Replayed most" else [*first, *counted]
    error_text = "" if isnan(error) else f"δ {signed_decimals(error)}, "
    reward = float(row.reward[i])
    return [
        *counts,
        f"age {int(row.age[i]):,}",
        f"{error_text}r {signed(compact(reward), reward)}",
        f"{row.action[i]}{' ■' if row.ended[i] else ''}",
    ]
