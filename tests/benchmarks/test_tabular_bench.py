"""The benchmark of the tabular learners runs and writes down what it prints."""

import json
import sys

from benchmarks import tabular


def test_a_quick_run_gives_every_figure(tmp_path, capsys, monkeypatch):
    out = tmp_path / "rates.json"
    quick = ["--replicas", "2", "--batch-size", "4", "--steps", "60", "--rounds", "1", "--json"]
    monkeypatch.setattr(sys, "argv", ["tabular", *quick, str(out)])
    tabular.main()
    figures = json.loads(out.read_text())["million_updates_per_second"]
    assert list(figures) == ["uniform", "prioritized", "plain loop"]
    assert all(row["learning"] >= row["all"] > 0 for row in figures.values())
    assert "1 online and 4 replayed updates a step" in capsys.readouterr().out
