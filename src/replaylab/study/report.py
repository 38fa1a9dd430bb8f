"""The report of a study: one HTML file, with every figure and table beside it as SVG and CSV.

It reads the study's folder alone and never imports the training code. The same data give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jinja2

from replaylab import palette, statistics
from replaylab.errors import SpecError
from replaylab.statistics import Band
from replaylab.study import analysis, contrast_report, figures, tables, words
from replaylab.study.analysis import Curve
from replaylab.study.files import write_text
from replaylab.study.page import KEYS, Page, ReportFigure, ReportTable
from replaylab.study.progress import duration

if TYPE_CHECKING:
    from pathlib import Path

    from replaylab.study.study import Study

_INSIDE = {
    "rollout/ep_rew": ("Return while exploring", "return of an episode"),
    "train/q_mean": ("Q value of the drawn steps", "mean Q"),
    "train/td_error_mean": ("TD error of the drawn steps", "mean |TD error|"),
    "train/loss": ("Loss", "loss"),
}
"""Curves shown without a test, where they were logged: title, and unit of the vertical axis."""


def write_report(study: Study, out: Path) -> Path:
    """Write ``report.html``, ``figures/`` and ``tables/`` into a folder and return the page's path.

    Args:
        study: what is reported; its own folder is only read.
        out: the folder to write to, made where it is missing.

    Raises:
        SpecError: the folder holds no results of these settings.
    """
    rows = study.results()
    curves = analysis.curves_of(rows, study.spec, analysis.RETURN)
    if not curves:
        raise SpecError(f"{study.folder}: the results hold no {analysis.RETURN}, so there is nothing to compare.")
    page = Page(study, curves, out)
    shown_tables, told = _compare(page, rows)
    shown = _figures(page, told) + _inside(page, rows)
    asked = contrast_report.section(
        page, lambda metric: curves if metric == analysis.RETURN else analysis.curves_of(rows, study.spec, metric)
    )
    html = _template().render(
        spec=study.spec,
        variables=palette.variables(),
        looks=palette.looks(list(study.spec.strategies), study.spec.baseline),
        told=told,
        asked=asked,
        tables=shown_tables,
        figures=shown,
        settings=_settings(study),
        machine=study.record("machine"),
        compute=_compute(study),
        significance=analysis.SIGNIFICANCE,
        final_share=analysis.FINAL_SHARE,
        resamples=statistics.RESAMPLES,
        exact_seeds=statistics.EXACT_SEEDS,
        permutations=statistics.PERMUTATIONS,
    )
    path = out / "report.html"
    write_text(path, html)
    return path


@dataclass(frozen=True)
class _Told:
    """The numbers of the comparison, and the sentences made of them."""

    levels: Sequence[analysis.Level]
    differences: Sequence[analysis.Difference]
    compared: str
    answers: Sequence[str]
    comparisons: Sequence[str]
    budgets: str
    warnings: Sequence[str]


def _compare(page: Page, rows: Any) -> tuple[list[ReportTable], _Told]:
    spec = page.spec
    levels = analysis.levels(page.curves)
    differences = analysis.differences(page.curves, spec.baseline)
    spent = analysis.spending(rows, spec)
    told = _Told(
        levels,
        differences,
        words.compared(spec),
        words.answers(differences, levels, spec) if differences else [],
        [words.comparison(d) for d in differences],
        words.budgets(spent, spec),
        _warnings(page),
    )
    made = [
        tables.level_table(page, levels),
        tables.difference_table(page, differences),
        tables.budget_table(page, spent),
    ]
    return [t for t in made if t.rows], told


def _warnings(page: Page) -> list[str]:
    study, found = page.study, []
    missing = [p for p in study.populations if not study.file_of(p).is_file()]
    if missing:
        found.append(
            f"Incomplete: {sum(len(p.seeds) for p in missing)} of {words.counted(page.spec.runs, 'run')} "
            f"are missing. What follows is about those that are there."
        )
    if not any(c.strategy == page.spec.baseline for c in page.curves):
        found.append(f"The runs of the baseline, {page.spec.baseline}, are missing, so nothing is compared with it.")
    few = words.few_seeds(page.spec)
    if few:
        found.append(few)
    made_with = _versions_of_files(study)
    if len(made_with) > 1:
        found.append(f"The runs were made with different library versions: {'; '.join(sorted(made_with))}.")
    return found


def _versions_of_files(study: Study) -> set[str]:
    from replaylab.study.store import read_metadata

    versions = (read_metadata(study.file_of(p))["versions"] for p in study.present)
    return {", ".join(f"{k} {v}" for k, v in each.items()) for each in versions}


Cells = list[list[tuple[Curve, Band]]]


def _cells(curves: Sequence[Curve]) -> Cells:
    """Curves with their bands, grouped by environment and learner."""
    grouped: dict[tuple[str, str], list[tuple[Curve, Band]]] = {}
    for curve in curves:
        grouped.setdefault(curve.cell, []).append((curve, statistics.curve_band(curve.values)))
    return list(grouped.values())


def _band_rows(cells: Cells) -> Iterable[Sequence[Any]]:
    for curve, band in (pair for cell in cells for pair in cell):
        for point in zip(curve.steps, *band, strict=True):
            yield (*curve.cell, curve.strategy, *(v.item() for v in point))


def _run_rows(curves: Sequence[Curve]) -> Iterable[Sequence[Any]]:
    for curve in curves:
        for seed, values in zip(curve.seeds, curve.values, strict=True):
            for step, value in zip(curve.steps, values, strict=True):
                yield (*curve.cell, curve.strategy, seed.item(), step.item(), value.item())


def _figures(page: Page, told: _Told) -> list[ReportFigure]:
    cells, looks = _cells(page.curves), page.looks
    band_header = (*KEYS, "step", "iqm", "low", "high")
    shown = [
        page.figure(
            "learning_curves",
            "Learning curves",
            "Greedy return: interquartile mean over runs, with pointwise 95 % bootstrap intervals.",
            partial(figures.curves, cells, looks, unit=tables.RETURN_UNIT, time=page.spec.budget.counted),
            band_header,
            _band_rows(cells),
        ),
        page.figure(
            "every_run",
            "Every run",
            f"Thin: one run each. Bold: their interquartile mean, with its 95 % interval. Dashed grey: "
            f"{page.spec.baseline}, for comparison. All panels of an environment share their scales.",
            partial(
                figures.every_run,
                cells,
                page.spec.baseline,
                looks,
                unit=tables.RETURN_UNIT,
                time=page.spec.budget.counted,
            ),
            (*KEYS, "seed", "step", "value"),
            _run_rows(page.curves),
        ),
        page.figure(
            "levels",
            "Level of every run",
            "Small dots: one run each. Large dot and bar: interquartile mean with its 95 % interval.",
            partial(figures.level_dots, page.curves, told.levels, looks, unit=tables.RETURN_UNIT),
            (*KEYS, "measure", "seed", "value"),
            (
                (*c.cell, c.strategy, m, seed.item(), value.item())
                for m in analysis.MEASURES
                for c in page.curves
                for seed, value in zip(c.seeds, c.of_runs(m), strict=True)
            ),
        ),
    ]
    if told.differences:
        pairs = list(analysis.comparisons(page.curves, page.spec.baseline))
        shown.append(
            page.figure(
                "differences",
                "Difference of every seed",
                "Small dots: one seed each, its run minus the baseline’s run of the same seed. Large dot "
                "and bar: difference of interquartile means with its paired 95 % interval. Right of the "
                "dashed line is better.",
                partial(figures.difference_dots, pairs, told.differences, looks, unit=tables.RETURN_UNIT),
                (*KEYS, "baseline", "measure", "pair", "difference"),
                (
                    (*c.cell, c.strategy, page.spec.baseline, m, i, float(a - b))
                    for m in analysis.MEASURES
                    for c, base in pairs
                    for i, (a, b) in enumerate(zip(*analysis.paired_values(c, base, m), strict=True))
                ),
            )
        )
    return shown


def _inside(page: Page, rows: Any) -> list[ReportFigure]:
    """Curves of what went on inside the learner, where it was logged."""
    shown = []
    for metric, (title, unit) in _INSIDE.items():
        curves = analysis.curves_of(rows, page.spec, metric)
        if not curves:
            continue
        cells = _cells(curves)
        shown.append(
            page.figure(
                metric.replace("/", "_"),
                title,
                f"{metric}: interquartile mean over runs, with pointwise 95 % bootstrap intervals. Shown, not tested.",
                partial(figures.curves, cells, page.looks, unit=unit, time=page.spec.budget.counted),
                (*KEYS, "step", "iqm", "low", "high"),
                _band_rows(cells),
            )
        )
    return shown


def _settings(study: Study) -> list[tuple[str, str]]:
    """Every setting of the study as (key path, value), as in its file."""
    skipped = {"name", "title", "question"}
    plain = study.spec.model_dump(mode="json", exclude=skipped)
    return [(path, value) for key, table in plain.items() for path, value in _flat(key, table)]


def _flat(path: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}", inner)
    elif path == "seeds" and len(value) > 3 and value == list(range(value[0], value[-1] + 1)):
        yield path, f"{value[0]} to {value[-1]}"
    else:
        yield path, json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value


def _compute(study: Study) -> str | None:
    """Return the computing time of the populations that are there, or None where it was not recorded."""
    times = [study.record(f"timing/{p.id}") for p in study.present]
    times = [t for t in times if t]
    if not times:
        return None
    seconds = sum(t["seconds"] for t in times)
    steps = sum(t["environment_steps"] for t in times)
    return f"{duration(seconds)} of one core for {steps:,} {study.spec.budget.counted}: {steps / seconds:,.0f} a second"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("replaylab", "study"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.jinja")
