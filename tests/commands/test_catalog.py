"""`replaylab study list --published`: statements, sources, and the studies and examples that test them."""

from pathlib import Path

import pytest

from replaylab.commands import main as cli
from replaylab.study import catalog

EXAMPLES = Path(__file__).parents[2] / "examples" / "published"


@pytest.fixture
def listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")

    def rows():
        assert cli.main(["study", "list", "--published"]) == 0
        head, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
        starts = [head.index(title) for title in ("claim", "source", "study or example", "time here")]
        ends = [*starts[1:], None]
        return [tuple(line[a:b].strip() for a, b in zip(starts, ends, strict=True)) for line in lines]

    return rows


def test_statements_of_studies_and_examples_are_listed(listed):
    rows = listed()
    assert len(set(rows)) == len(rows)
    assert ("Combined replay rescues a buffer that is too large", "Zhang & Sutton 2017", "grid-world") in {
        row[:3] for row in rows
    }
    (bit_flip,) = (row for row in rows if row[2] == "bit_flip")
    assert bit_flip[0].startswith("Without hindsight deep Q-learning fails beyond about 13 bits")
    assert bit_flip[1:] == ("Andrychowicz et al. 2017, section 3.1 and figure 1", "bit_flip", "about 10 min")
    assert {row[2] for row in rows} == {
        *("combined-capacity", "grid-world", "minatar"),
        *(file.stem for file in EXAMPLES.glob("*.py") if file.stem != "figures"),
    }


def test_every_example_states_claim_source_and_minutes():
    for name, stated in catalog.published_examples().items():
        assert set(stated) == {"Claim", "Source", "Minutes"}, name
        assert int(stated["Minutes"]) > 0


def test_without_a_checkout_only_studies_are_listed(listed, monkeypatch, tmp_path):
    studies = catalog.shipped()
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "replaylab" / "study" / "catalog.py"))
    monkeypatch.setattr(catalog, "shipped", lambda: studies)
    assert {row[2] for row in listed()} == {"combined-capacity", "grid-world", "minatar"}


def test_the_removed_command_is_unknown(capsys):
    assert cli.main(["claims"]) == 2
    assert "`replaylab` has no command `claims`" in capsys.readouterr().err
