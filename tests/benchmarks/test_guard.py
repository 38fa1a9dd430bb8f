"""The guard names what got slower beside the limit, and nothing that noise explains."""

import numpy as np

from benchmarks import guard

CONDITIONS = {"processor": "a processor", "steps": 1000, "peers": True}


def rounds(scale, spread=0.01, seed=0):
    return scale * (1 + spread * np.random.default_rng(seed).standard_normal(50))


def ratios(draw=2.0, add=3.0, spread=0.01, seed=0):
    """Ratios of a run in which these two take so many times as long as the limit."""
    limit = rounds(10.0, spread, seed)
    return guard.ratios_to_limit(
        {
            "draw": {"replaylab": rounds(10.0 * draw, spread, seed + 1), "limit": limit},
            "add": {"replaylab": rounds(10.0 * add, spread, seed + 2), "limit": limit},
            "store": {"replaylab": limit},
            "peers only": {"rlox": limit, "limit": limit},
        }
    )


def test_ratios_are_of_operations_that_have_a_limit():
    now = ratios()
    assert set(now) == {"draw", "add"}
    low, high = now["draw"]["interval"]
    assert low < now["draw"]["ratio"] < high
    assert abs(now["draw"]["ratio"] - 2.0) < 0.02


def test_a_slower_operation_is_named(tmp_path):
    guard.keep(ratios(), CONDITIONS, tmp_path / "limits.json")
    (line,) = guard.compare(ratios(draw=2.3, seed=9), CONDITIONS, tmp_path / "limits.json")
    assert line.startswith("slower: draw: 2.3")
    assert "kept: 2.0" in line


def test_noise_is_not_named(tmp_path):
    path = tmp_path / "limits.json"
    guard.keep(ratios(), CONDITIONS, path)
    for now in (ratios(seed=9), ratios(draw=2.16, add=1.0, seed=9), ratios(draw=2.3, spread=0.6, seed=9)):
        assert guard.compare(now, CONDITIONS, path) == ["nothing got slower"]


def test_ratios_of_another_processor_are_information(tmp_path):
    guard.keep(ratios(), CONDITIONS, tmp_path / "limits.json")
    lines = guard.compare(ratios(add=9.0), CONDITIONS | {"processor": "another"}, tmp_path / "limits.json")
    assert lines[0].startswith("for information only")
    assert "processor is another; kept: a processor" in lines[0]
    assert lines[1].startswith("slower: add: 9.0")


def test_a_run_of_one_part_keeps_the_others(tmp_path):
    path = tmp_path / "limits.json"
    assert "does not exist" in guard.compare(ratios(), CONDITIONS, path)[0]
    assert "was not timed" in guard.compare({}, CONDITIONS, path)[0]
    guard.keep({"draw": ratios()["draw"]}, CONDITIONS, path)
    assert guard.compare(ratios(), CONDITIONS, path)[1].startswith("not kept: add: 3.0")
    guard.keep({"add": ratios()["add"]}, CONDITIONS, path)
    assert guard.compare(ratios(), CONDITIONS, path) == ["nothing got slower"]
    guard.keep({"add": ratios()["add"]}, CONDITIONS | {"steps": 10}, path)
    assert guard.compare(ratios(), CONDITIONS | {"steps": 10}, path)[1].startswith("not kept: draw")
