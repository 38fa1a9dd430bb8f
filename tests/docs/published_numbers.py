"""Numbers on pages, held against the tables of published studies, and these tables against their rows.

`docs/results/<study>/numbers.toml` says where a page gets its numbers from:

    page = "minatar.md"              # from docs/results; defaults for every entry
    section = "## Result"            # heading of the part of the page to search; without it the complete page

    [[numbers]]
    text = "| D | {} ({} to {}) | {} |"
    table = "contrasts"              # tables/contrasts.csv
    rows = [{ contrast = "D" }]
    columns = ["difference", "low", "high", "verdict"]

Each `{}` stands for a number, or a word where the table has a word: first those of the first row, column by column. The
text must be on the page exactly once; or, with `after = "some text"`, the first one after that counts. `**` and line
breaks do not matter. `times = -1` compares with the negated number.

`docs/results/<study>/undeclared.toml` has contrasts that were asked after the data had been seen. The table
`undeclared` has their results, as one family beside the declared primary contrast. A page that prints them states that
they were not declared.
"""

import csv
import io
import math
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from replaylab.study import Study
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.contrast_results import evaluate_contrasts
from replaylab.study.report import tables
from replaylab.study.report.page import Page
from replaylab.study.report.sections import all_environments, contrasts, replay_measures
from replaylab.study.spec.declared_contrasts import DeclaredContrast

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TABLES = (
    "budgets", "checks", "contrasts", "differences", "heterogeneity", "levels", "measures", "overall", "published",
    "undeclared",
)  # fmt: skip
"""Tables that are recomputed. The sizes of effects are not: they take as long as all others, and no page has them."""

KEYS = {"page", "section", "text", "table", "rows", "columns", "times", "after"}

_NUMBER = r"([+−-]?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+))"
_WORD = r"(\w+(?: \w+)*)"


def read_table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("**", ""))


def part_of(page: str, section: str) -> str:
    """Return the text below a heading, up to the next heading."""
    if not section:
        return page
    _, separator, below = page.partition(f"\n{section}\n")
    assert separator, f"no heading {section!r}"
    return re.split(r"^#+ ", below, maxsplit=1, flags=re.M)[0]


def looked_up(entry: dict[str, Any], rows: list[dict[str, str]]) -> list[str]:
    """Return the cells of a table that an entry names, in the order of its text."""
    cells = []
    for wanted in entry["rows"]:
        matching = [row for row in rows if wanted.items() <= row.items()]
        assert len(matching) == 1, f"{len(matching)} rows match {wanted}"
        cells += [matching[0][column] for column in entry["columns"]]
    return cells


def is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def is_rounded(printed: str, value: float) -> bool:
    """Return whether a printed number is a value, rounded to the printed digits."""
    number = printed.replace(",", "").replace("−", "-")
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    return abs(float(number) - value) <= half * (1 + 1e-9)


def problems(entry: dict[str, Any], page: str, rows: list[dict[str, str]]) -> list[str]:
    """Return what is wrong with the numbers of one entry: the text is not on the page, or says other numbers."""
    cells = looked_up(entry, rows)
    literal = [re.escape(part) for part in plain(entry["text"]).split("{}")]
    if len(literal) != len(cells) + 1:
        return [f"{entry['text']!r} has {len(literal) - 1} places for {len(cells)} cells"]
    pattern = literal[0] + "".join(
        (_NUMBER if is_number(cell) else _WORD) + after for cell, after in zip(cells, literal[1:], strict=True)
    )
    searched = plain(part_of(page, entry.get("section", "")))
    if "after" in entry:
        searched = searched.partition(plain(entry["after"]))[2]
    matches = list(re.finditer(pattern, searched))
    if len(matches) != 1 and not ("after" in entry and matches):
        return [f"{entry['text']!r} is {len(matches)} times on the page"]
    wrong = []
    for printed, cell in zip(matches[0].groups(), cells, strict=True):
        value = entry.get("times", 1) * float(cell) if is_number(cell) else cell
        if not (printed == value if isinstance(value, str) else is_rounded(printed, value)):
            wrong.append(f"{matches[0].group()!r} has {printed}, its table {value}")
    return wrong


def entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a study's `numbers.toml`, with the file's defaults."""
    content = tomllib.loads(file.read_text())
    defaults = {key: value for key, value in content.items() if key != "numbers"}
    for entry in content["numbers"]:
        merged = {"page": "index.md", **defaults, **entry}
        assert merged.keys() <= KEYS, f"{file}: unknown keys {sorted(merged.keys() - KEYS)}"
        yield merged


class PublishedStudy:
    """A study opened from its published rows; what several of its tables need is computed once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = Study.from_folder(folder)
        self.spec = self.study.spec
        self.rows = self.study.results()
        self.curves = comparisons.curves_of(self.rows, self.spec, comparisons.RETURN)

    @cached_property
    def _levels(self) -> list[comparisons.Level]:
        return comparisons.levels(self.curves)

    def levels(self, page: Page) -> None:
        tables.level_table(page, self._levels)

    def budgets(self, page: Page) -> None:
        tables.budget_table(page, comparisons.budgets_spent(self.rows, self.spec, self.curves))

    def contrasts(self, page: Page) -> None:
        contrasts.table(page, self.study.contrasts().results)

    def published(self, page: Page) -> None:
        contrasts.published_table(page, self.study.contrasts().results)

    def checks(self, page: Page) -> None:
        contrasts.checks_table(page, self.study.contrasts().results)

    def heterogeneity(self, page: Page) -> None:
        contrasts.heterogeneity_table(page, self.study.contrasts().results)

    def differences(self, page: Page) -> None:
        tables.difference_table(page, comparisons.differences_of(self.curves, self.spec))

    def measures(self, page: Page) -> None:
        results = comparisons.ComparisonResults(self._levels, [], [])
        replay_measures.table(page, results, replay_measures.measured(page))

    def overall(self, page: Page) -> None:
        all_environments.table(page, list(all_environments.scored(page)))

    def undeclared(self, page: Page) -> None:
        (primary,) = (contrast for contrast in self.spec.contrasts if contrast.primary)
        file = tomllib.loads((self.folder / "undeclared.toml").read_text())
        asked = [DeclaredContrast.model_validate(contrast) for contrast in file["contrasts"]]
        spec = self.spec.model_copy(
            update={"contrasts": (primary.model_copy(update={"each_environment": False}), *asked)}
        )
        _, *results = evaluate_contrasts(spec, page.curves_of).results
        contrasts.table(page, results, "undeclared")

    def table(self, name: str, out: Path) -> str:
        """Return a table as the report writes it."""
        getattr(self, name)(Page(self.study, self.rows, self.curves, out, figure_files=False))
        return (out / "tables" / f"{name}.csv").read_text()


opened = lru_cache(maxsize=1)(PublishedStudy)


def differing(published: str, again: str) -> list[str]:
    """Return the cells in which two tables differ; numbers may differ by the rounding of sums."""
    first, second = (list(csv.reader(io.StringIO(text))) for text in (published, again))
    if first[0] != second[0] or len(first) != len(second):
        return [f"{len(first)} rows of {first[0]}, recomputed {len(second)} of {second[0]}"]
    return [
        f"{row[:3]} {column}: {a}, recomputed {b}"
        for row, other in zip(first[1:], second[1:], strict=True)
        for column, a, b in zip(first[0], row, other, strict=True)
        if a != b
        and not (is_number(a) and is_number(b) and math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-12))
    ]
