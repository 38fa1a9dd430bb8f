"""Two folders side by side: matched by name, paired by seed where they can be, with the settings that differ."""

import csv

import pytest

from replaylab.commands.main import main
from replaylab.errors import SpecError
from replaylab.study.report.compare.comparison_page import lines, write
from replaylab.study.report.compare.two_studies import compared
from tests.study.tiny import pretend, study


@pytest.fixture
def before(tmp_path):
    found = study(tmp_path / "before", seeds=8, population=8)
    pretend(found, 10.0)
    return found


def test_shared_seeds_are_paired_and_settings_that_differ_are_named(before, tmp_path, capsys):
    after = study(
        tmp_path / "after", seeds=8, population=8, learners__dqn__batch_size=16, strategies__none={"type": "online"}
    )
    pretend(after, 40.0)
    found = compared(before, after)
    by = {(d.strategy, d.measure): d for d in found.differences}
    assert by["uniform", "final"].verdict == "same runs"
    assert by["prioritized", "final"].verdict == "higher"
    assert by["prioritized", "final"].pairs == 8
    assert by["prioritized", "final"].size.estimate == pytest.approx(30.0, abs=0.1)
    assert ("learners.dqn.batch_size", "8", "16") in found.settings
    assert found.unmatched == [("CartPole-v1 · dqn · none", "B")]
    assert main(["study", "compare", str(before.folder), str(after.folder), "--out", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:-1] == lines(found)
    assert "setting learners.dqn.batch_size: A 8, B 16" in printed
    page = (tmp_path / "page" / "comparison.html").read_text()
    assert '<td class="higher"><b>▲ higher</b>+' in page
    with (tmp_path / "page" / "tables" / "comparison.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


def test_other_seeds_are_compared_as_groups(before, tmp_path):
    after = study(tmp_path / "after", seeds=list(range(100, 106)), population=6)
    pretend(after, 60.0)
    found = compared(before, after)
    assert {d.pairs for d in found.differences} == {0}
    gain = next(d for d in found.differences if (d.strategy, d.measure) == ("prioritized", "final"))
    assert gain.verdict == "higher"
    assert gain.runs == (8, 6)
    assert gain.size.low < 50.0 < gain.size.high
    assert any("unpaired, 8 and 6 runs" in line for line in lines(found))
    write(found, tmp_path / "page")


def test_nothing_in_common(before, tmp_path):
    other = study(tmp_path / "other", environments=["Acrobot-v1"])
    pretend(other, 0.0)
    with pytest.raises(SpecError, match="must have an environment, learner and strategy in common"):
        compared(before, other)
