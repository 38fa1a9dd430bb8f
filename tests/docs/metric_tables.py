"""The documentation's tables of metrics, made from the registry.

python -m tests.docs.metric_tables        # writes them into the pages anew
"""

import re

from replaylab.learners.metrics.registry import METRICS, Metric
from tests.docs.test_pages import DOCS

WHEN = {"episode": "each episode", "evaluation": "each evaluation", "update": "update", "end": "end"}
BEGIN = "| metric | "


def training_table():
    """What every run records, and when."""
    rows = [(f"`{one.name}`", _when(one), one.unit, one.meaning) for one in METRICS if one.when in WHEN]
    return _table(("metric", "when", "unit", "what"), rows)


def measures_table():
    """What is recorded of batches."""
    rows = [
        (f"`{one.name}`", one.definition or one.meaning, one.unit, one.uniform, one.source or "–")
        for one in METRICS
        if one.when == "measures"
    ]
    return _table(("metric", "what", "unit", "uniform", "source"), rows)


TABLES = {"training.md": training_table, "measures.md": measures_table}


def table_of(page):
    """The table of metrics that stands in a page now."""
    return re.search(r"^\| metric \| .*?\n(?!\|)", page, re.M | re.S).group()


def page_named(name):
    """A page of the documentation, wherever it stands."""
    return next(DOCS.rglob(name))


def _when(metric: Metric) -> str:
    return WHEN[metric.when] + (f", with `{metric.needs}`" if metric.needs else "")


def _table(head, rows):
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    for name, table in TABLES.items():
        file = page_named(name)
        text = file.read_text()
        file.write_text(text.replace(table_of(text), table()))
