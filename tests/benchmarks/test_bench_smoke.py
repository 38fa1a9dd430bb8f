"""The benchmark runs, stores what it should, and says what it did not measure."""

import json
import shutil

import numpy as np
import pytest
from benchmarks.contestant import Pool
from benchmarks.limit import Limit, compile_limit
from benchmarks.timing import OPERATIONS, prepare

from benchmarks import peers, replay, report

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


def test_quick_run_without_peers_times_every_operation(tmp_path, capsys):
    out = tmp_path / "result.json"
    assert replay.main(["--quick", "--no-peers", "--no-limit", "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert set(result["microseconds"]) == {operation.name for operation in OPERATIONS}
    assert all(row["replaylab"]["median"] > 0 for row in result["microseconds"].values())
    assert {entry["verdict"] for entry in result["targets"].values()} == {"not measured"}
    assert result["machine"]["processor"]
    assert result["versions"]["replaylab"]
    assert "not measured" in capsys.readouterr().out


@needs_compiler
def test_the_limit_answers_for_every_operation(tmp_path):
    program = compile_limit(tmp_path)
    assert program is not None
    with Limit(program, 1000) as limit:
        assert all(limit.block(operation.limit, 2) > 0 for operation in OPERATIONS)
        with pytest.raises(RuntimeError, match="gave no time for 'dance'"):
            limit.block("dance", 1)


def test_a_missing_peer_is_named_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert replay.contenders(no_peers=False) == [replay.Replaylab]
    lines = capsys.readouterr().out.splitlines()
    assert 'rlox: not installed: pip install "replaylab[bench]"' in lines
    assert len(lines) == len(peers.PEERS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_inputs_depend_on_the_round_only(operation):
    pool = Pool.draw(np.random.default_rng(0), 2000)
    contestant = replay.Replaylab(1000, operation.prioritized)
    contestant.fill(pool, np.ones(1000))
    first, again, later = (prepare(contestant, operation, pool, (0, number, 0)) for number in (1, 1, 2))
    assert first is not None
    assert len(first) == operation.calls
    assert flat(first) == flat(again)
    assert flat(first) != flat(later)


def flat(inputs):
    first = [item.obs if isinstance(item, Pool) else item for item in inputs]
    return [np.asarray(item[0] if isinstance(item, tuple) else item).tolist() for item in first]


def test_verdicts_compare_medians():
    times = {
        operation.name: {
            "replaylab": np.array([1.0, 1.0, 9.0]),
            "rlox": np.array([5.0, 5.0, 1.0]),
            "cpprb": np.array([6.0, 6.0, 6.0]),
            "limit": np.array([0.4, 0.4, 0.4]),
        }
        for operation in OPERATIONS
    }
    verdicts = [target.verdict(times) for target in report.TARGETS]
    assert verdicts == [
        ("met", 5.0),
        ("not met", 2.5),
        ("met", 5.0),
        ("met", 5.0),
        ("met", 0.2),
        ("met", 6.0),
    ]
    assert report.fastest_peer(times["uniform add"]) == "rlox"
    assert "rlox *" in report.table(times)
