"""The command `replaylab claims`: what it prints and writes."""

import json

import pytest

from replaylab.claims import CLAIMS, Claim, ReplicatedFigure, ReplicationOutcome, overall, reporting
from replaylab.claims.reporting import line
from replaylab.commands import main as cli

YES = ReplicatedFigure("a share", "about 1", 1.25, 1.0, 1.5, "range of 2 runs", ReplicationOutcome.REPRODUCED)
NO = ReplicatedFigure("a count", "12,345", 54321.0, 54321.0, 54321.0, "exact", ReplicationOutcome.NOT_REPRODUCED)
DOUBT = ReplicatedFigure("a doubt", "yes", 0.0, 0.0, 0.0, "exact", ReplicationOutcome.CONTESTED)
MORE = ReplicatedFigure("more", "gives none", 3.0, 2.0, 4.0, "range of 2 runs", None)


def test_lines_hold_source_figure_interval_and_verdict():
    assert line(YES) == "   a share: source about 1; ours 1.25 [1, 1.5] (range of 2 runs): reproduced"
    assert line(NO) == "   a count: source 12,345; ours 54,321 (exact): not reproduced"
    assert line(MORE) == "   more: source gives none; ours 3 [2, 4] (range of 2 runs)"


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([YES, MORE], ReplicationOutcome.REPRODUCED),
        ([YES, DOUBT], ReplicationOutcome.CONTESTED),
        ([DOUBT, NO, YES], ReplicationOutcome.NOT_REPRODUCED),
    ],
)
def test_a_claim_is_as_good_as_its_worst_finding(findings, verdict):
    assert overall(findings) is verdict


def test_claims_are_numbered_by_their_key():
    assert all(number == claim.number for number, claim in CLAIMS.items())


def test_command_prints_and_writes(monkeypatch, tmp_path, capsys):
    claim = Claim(9, "Nine", "nine is nine", "arithmetic", 0.1, lambda: iter([YES, NO]))
    monkeypatch.setattr("replaylab.claims.CLAIMS", {9: claim})
    file = tmp_path / "claims.json"
    assert cli.main(["claims", "9", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    for wanted in ("9. Nine: nine is nine", "Source: arithmetic", line(YES), line(NO), "verdict: not reproduced"):
        assert wanted in printed
    (reported,) = json.loads(file.read_text(encoding="utf-8"))
    assert (reported["number"], reported["verdict"]) == (9, "not reproduced")
    assert reported["findings"][0]["ours"] == 1.25
    assert reported["findings"][1]["verdict"] == "not reproduced"


def test_all_claims_are_kept_and_reported_in_a_table(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    counted, reported = [], [YES, NO]

    def measure():
        counted.append(1)
        yield from reported

    claims = {9: Claim(9, "Nine", "nine", "arithmetic", 0.1, measure), 10: Claim(10, "Ten", "ten", "a|b", 0.1, measure)}
    monkeypatch.setattr("replaylab.claims.CLAIMS", claims)
    assert cli.main(["claims", "--all"]) == 0
    place = tmp_path / "results" / "claims" / reporting.code_digest()
    table = (place / "claims.md").read_text(encoding="utf-8")
    assert table in capsys.readouterr().out
    lines = table.splitlines()
    assert lines[0] == "| claim | figure | published | here | interval | verdict | minutes |"
    assert lines[2].startswith("| 9. Nine: **not reproduced** | a share | about 1 | 1.25 | 1 to 1.5, range of 2 runs |")
    assert lines[3] == "|  | a count | 12,345 | 54,321 | exact | not reproduced |  |"
    assert [len(line.split("|")) for line in lines] == [9] * 7
    assert len(counted) == 2

    (place / "claim-10.json").unlink()  # as if it had been stopped
    assert cli.main(["claims", "--all"]) == 0
    assert len(counted) == 3
    assert "9. Nine: measured before" in capsys.readouterr().out
    monkeypatch.setattr(reporting, "code_digest", lambda: "other")
    assert cli.main(["claims", "--all"]) == 0
    assert len(counted) == 5


def test_studies_of_claims_lie_beside_their_figures(tmp_path):
    given = []
    claim = Claim(
        9, "Nine", "nine", "arithmetic", 0.1, lambda *studies: given.extend(studies) or iter([YES]), ("quick",)
    )
    (reported,) = reporting.rerun([claim], lambda _: None, tmp_path)
    assert reported["verdict"] == "reproduced"
    assert [study.folder for study in given] == [tmp_path / reporting.code_digest() / "quick"]


def test_all_takes_no_numbers(capsys):
    assert cli.main(["claims", "--all", "1"]) == 2
    assert "--all measures every claim; leave the numbers out" in capsys.readouterr().err


def test_unknown_claims_are_refused(capsys):
    assert cli.main(["claims", "99"]) == 2
    assert "got [99]" in capsys.readouterr().err
