"""The command `replaylab claims`: what it prints and writes."""

import json

import pytest

from replaylab.claims import CLAIMS, Claim, ReplicatedFigure, ReplicationOutcome, catalog, overall
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
    monkeypatch.setattr(catalog, "CLAIMS", {9: claim})
    file = tmp_path / "claims.json"
    assert cli.main(["claims", "9", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    for wanted in ("9. Nine: nine is nine", "Source: arithmetic", line(YES), line(NO), "verdict: not reproduced"):
        assert wanted in printed
    (told,) = json.loads(file.read_text(encoding="utf-8"))
    assert (told["number"], told["verdict"]) == (9, "not reproduced")
    assert told["findings"][0]["ours"] == 1.25
    assert told["findings"][1]["verdict"] == "not reproduced"


def test_unknown_claims_are_refused(capsys):
    assert cli.main(["claims", "99"]) == 2
    assert "got [99]" in capsys.readouterr().err
