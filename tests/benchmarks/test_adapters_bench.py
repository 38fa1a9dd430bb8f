"""The benchmark of the adapters runs, and names what it did not measure."""

import json

import pytest

from benchmarks import adapters

pytest.importorskip("stable_baselines3")
pytest.importorskip("tianshou")


def test_a_quick_run_prints_a_ratio_for_every_operation(tmp_path, capsys):
    out = tmp_path / "figures.json"
    assert adapters.main(["--rounds", "2", "--calls", "10", "--json", str(out)]) == 0
    result, printed = json.loads(out.read_text()), capsys.readouterr().out
    libraries = {name.split()[0] for name in result["figures"]}
    assert libraries | set(result["not measured"]) == {"CleanRL", "Stable-Baselines3", "TorchRL", "Tianshou"}
    assert {"Stable-Baselines3", "Tianshou"} <= libraries
    for name, row in result["figures"].items():
        assert row["ratio"] == pytest.approx(row["replaylab"] / row["original"])
        assert name in printed
    assert "CleanRL: not measured (no --cleanrl FOLDER)" in printed
