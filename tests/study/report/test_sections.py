"""A custom section: one function, and its line in the list."""

from replaylab.study.report import report, sections
from replaylab.study.report.page import KEY_COLUMNS, Column, Section
from tests.study.tiny import pretended


def best_seed(page, results):
    """Return a toy section: a table of each strategy's best run, from numbers that the page already has."""

    def best(curve):
        return float(curve.of_runs("final").max())

    columns = [*KEY_COLUMNS, Column("Best run", lambda curve: f"{best(curve):.0f}", "best", best)]
    table = page.table("best", "The best run", "Not a fair comparison.", page.curves, columns)
    return Section("Best runs", [table], [f"{len(results.levels)} levels were compared."])


def nothing(page, results):
    """A section that this study has no numbers for."""


def test_a_section_is_a_function_and_its_line_in_the_list(tmp_path, monkeypatch, undrawn):
    tiny = pretended(tmp_path, 10.0)
    before = tiny.report(figure_files=False).read_text()
    monkeypatch.setattr(report, "SECTIONS", (best_seed, *sections.SECTIONS, nothing))
    after = tiny.report(figure_files=False).read_text()
    assert "<h2>Best runs</h2>" in after
    assert "4 levels were compared." in after
    assert (
        (tmp_path / "tables" / "best.csv").read_text().startswith("environment,learner,strategy,best\nCartPole-v1,dqn,")
    )
    link = '<li><a href="#part-best-runs">Best runs</a></li>'
    assert link in after
    begin, following = (
        after.index(f'<details class="part"><summary><h2>{title}') for title in ("Best runs", "Learning")
    )
    assert after[:begin].replace(link, "") + after[following:] == before, "nothing else changes"


def test_every_section_is_a_file_with_a_function_of_its_name():
    names = [section.__module__.rpartition(".")[2] for section in sections.SECTIONS]
    assert len(set(names)) == len(names)
    assert all(section.__name__ == "section" for section in sections.SECTIONS)
