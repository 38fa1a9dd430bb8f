"""A study's tables and methods as LaTeX: each table a file to input, the methods as paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from replaylab.files.atomic import write_text
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.report import methods, sentences, tables
from replaylab.study.report.caveats import caveats
from replaylab.study.report.page import WORD_COLUMNS, Page, ReportTable
from replaylab.study.report.sections import contrasts
from replaylab.study.report.what_ran import what_ran

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "", "pi", "rho", "", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
)
"""Small letters from α on; omicron, and the sigma at a word's end, have no command."""

_CAPITALS = {"Γ", "Δ", "Θ", "Λ", "Ξ", "Π", "Σ", "Υ", "Φ", "Ψ", "Ω"}
"""Those that have one, since they do not look like Latin letters."""

_WRITTEN = str.maketrans(
    {
        **{chr(ord("α") + k): f"$\\{name}$" for k, name in enumerate(_GREEK) if name},
        **{c: f"$\\{_GREEK[ord(c.lower()) - ord('α')].capitalize()}$" for c in _CAPITALS},
        **{c: f"\\{c}" for c in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        "<": "$<$",
        ">": "$>$",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "∞": r"$\infty$",
        "≈": r"$\approx$",
        "→": r"$\to$",
        "°": r"$^\circ$",
        "²": "$^2$",
        "√": r"$\surd$",
        "\xa0": "~",
        "·": r"$\cdot$",
        "–": "--",
        "—": "---",
        "…": r"\ldots{}",
        "“": "``",
        "”": "''",
        "‘": "`",
        "’": "'",
    }
)
"""As LaTeX writes what it would take for a command, and signs that older fonts lack."""


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote, and what it warns of, as the report does; the methods hold it, too."""

    files: list[Path]
    warnings: list[str]


def export(study: ReportedStudy, out: Path) -> Exported:
    """Write the tables of levels, differences and contrasts that have rows, and the methods.

    Args:
        study: whose results.
        out: the folder, made where it is missing; the tables' numbers come as CSV into its ``tables/``.

    Raises:
        SpecError: the study's folder holds no results.
    """
    rows = study.results()
    curves = comparisons.curves_of(rows, study.spec, comparisons.RETURN)
    page = Page(study, rows, curves, out, figure_files=False)
    report_tables = [tables.level_table(page, comparisons.levels(curves))]
    if differences := comparisons.differences_of(curves, study.spec):
        report_tables.append(tables.difference_table(page, differences))
    warnings = caveats(page)
    if study.spec.contrasts:
        evaluated = evaluate_contrasts(study.spec, page.curves_of)
        report_tables.append(contrasts.table(page, evaluated.results))
        warnings += evaluated.warnings
    texts = {report_table.key: table(report_table) for report_table in report_tables if report_table.rows} | {
        "methods": paragraphs(study, warnings)
    }
    for key in ("levels", "differences", "contrasts"):
        if key not in texts:  # what an earlier export wrote is of other results
            (out / f"{key}.tex").unlink(missing_ok=True)
            (out / "tables" / f"{key}.csv").unlink(missing_ok=True)
    files = []
    for key, content in texts.items():
        files.append(out / f"{key}.tex")
        write_text(files[-1], content)
    return Exported(files, warnings)


def escaped(text: str) -> str:
    r"""Return a text as LaTeX that shows it.

    Example:
        >>> escaped("beta_0 = 50 % & −1.5")
        'beta\\_0 = 50 \\% \\& $-$1.5'
    """
    return text.translate(_WRITTEN)


def table(shown: ReportTable) -> str:
    """Return a table of a report as a floating one of LaTeX, in booktabs' style."""
    columns = "".join("l" if name in WORD_COLUMNS else "r" for name in shown.header)
    body = "\n".join(_row(row) for row in shown.rows)
    return (
        "\\begin{table}\n\\centering\\small\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{_row(shown.header)}\n\\midrule\n{body}\n\\bottomrule\n"
        f"\\end{{tabular}}\n\\caption{{{escaped(shown.title)}. {escaped(shown.caption)}}}\n"
        f"\\label{{tab:{shown.key}}}\n\\end{{table}}\n"
    )


def _row(cells: Sequence[str]) -> str:
    r"""Return a row; its first braces keep a cell that begins with [ or * from being an argument of \\ or \midrule."""
    return "{}" + " & ".join(map(escaped, cells)) + r" \\"


def paragraphs(study: ReportedStudy, warnings: Sequence[str] = ()) -> str:
    """Return what to warn of, what was compared, how it was run and how it was judged, as paragraphs."""
    study_methods = methods.of(study)
    warned = [f"Warning: {warning}" for warning in warnings]
    texts = [*warned, sentences.compared(what_ran(study)), *study_methods.run, *study_methods.statistics]
    return "\n\n".join(map(escaped, texts)) + "\n"
