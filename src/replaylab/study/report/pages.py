"""Pages from templates: all have one style and one script, which stand in them."""

from __future__ import annotations

from typing import Any

import jinja2

from replaylab.plotting import palette, svg
from replaylab.study.report.page import WORD_COLUMNS, ReportFigure


def render(name: str, **values: Any) -> str:
    """Return a page of HTML.

    Args:
        name: of its template, without endings.
        values: what the template takes.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("replaylab", "study/report/templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(f"{name}.html.jinja").render(
        fonts=svg.FONTS,
        variables=palette.variables(),
        is_figure=lambda part: isinstance(part, ReportFigure),
        word_columns=WORD_COLUMNS,
        **values,
    )
