"""The benchmark runs, stores what it should, and says what it did not measure."""

import gc
import json
import shutil
from functools import partial

import numpy as np
import pytest
from benchmarks.contestant import Pool
from benchmarks.limit import LABEL, Limit, compile_limit
from benchmarks.timing import OPERATIONS, prepare, run_rounds

from benchmarks import replay, report, scene, sequences


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Before each measurement garbage is collected: not among all that other tests have imported until now."""
    gc.freeze()


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


def test_quick_run_without_peers_times_every_operation(tmp_path, capsys):
    out = tmp_path / "result.json"
    quick = ["--quick", "--no-peers", "--no-limit", "--out", str(out), "--figures", str(tmp_path)]
    assert replay.main([*quick, "--parts", "rows", "capacity"]) == 0
    result = json.loads(out.read_text())
    assert set(result["microseconds"]) == {operation.name for operation in OPERATIONS}
    assert set(result["capacity"]["uniform sample(256)"]["replaylab"]) == {"10000", "30000"}
    assert "capacity, steps" in (tmp_path / "capacity.svg").read_text()
    assert all(row["replaylab"]["median"] > 0 for row in result["microseconds"].values())
    assert {entry["verdict"] for entry in result["targets"].values()} == {"not measured"}
    assert result["machine"]["processor"]
    assert result["versions"]["replaylab"]
    assert "not measured" in capsys.readouterr().out


SMALL = {"n-step": 3000, "frames": 600, "hindsight": 1000, "sequences": 3000}


@pytest.mark.parametrize("name", SMALL)
def test_our_part_in_each_scene_is_verified_and_timed(name):
    scene_of_name, timed = replay.SCENES[name], []
    for kind in scene_of_name.drawers:
        if kind.package == "replaylab":
            timed.append(scene.filled(partial(kind, SMALL[name]), SMALL[name])[0])
            timed[-1].verify()
    times = run_rounds(scene_of_name.rows(timed, None), 1, 0, lambda number: None)
    assert set(times) == {work.name for work in scene_of_name.works}
    assert all(set(row) == {drawer.label for drawer in timed} for row in times.values())


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_value_in_a_batch_is_found(name, monkeypatch):
    drawer, _ = scene.filled(partial(replay.SCENES[name].drawers[0], SMALL[name]), SMALL[name])
    draw = drawer.fetch

    def spoiled(*arguments):
        batch = draw(*arguments)
        batch["action"][-1] += 1
        return batch

    monkeypatch.setattr(drawer, "fetch", spoiled)
    with pytest.raises(RuntimeError, match="replaylab drew a wrong action"):
        drawer.verify()


def test_a_priority_given_to_another_step_is_noticed(monkeypatch):
    contestant = replay.Replaylab(1000, True)
    contestant.fill(Pool.draw(np.random.default_rng(0), 2000), np.ones(1000))
    contestant.check_priorities()
    prepare_update = contestant.prepare_update
    monkeypatch.setattr(contestant, "prepare_update", lambda ages, priorities: prepare_update(ages + 1, priorities))
    with pytest.raises(RuntimeError, match="replaylab gave the newest step's priority to another step"):
        contestant.check_priorities()


def test_every_peer_of_a_scene_says_where_it_comes_from(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert scene.installed(sequences.SCENE.drawers[-2:]) == []
    assert capsys.readouterr().out.splitlines() == [
        'torchrl: not installed: pip install "replaylab[bench]"',
        'flashbax: not installed: pip install "replaylab[bench-jax]"',
    ]


@needs_compiler
@pytest.mark.parametrize("part", replay.SCENES.values(), ids=list(replay.SCENES))
def test_every_draw_of_a_scene_has_a_limit(tmp_path, part):
    program = compile_limit(tmp_path, part.limit)
    assert program is not None
    with Limit(program, *part.sizes(1000)) as limit:
        rows = part.rows([], limit)
        for work in part.works:
            assert set(rows[work.name]) >= ({LABEL} if work.batch else set())
            assert all(turn((0, 0, 0)) > 0 for turn in rows[work.name].values())


def test_a_reward_function_does_not_count_towards_the_limit():
    row = {label: np.array([time]) for label, time in [("replaylab", 50.0), ("limit", 20.0), (scene.REWARD, 10.0)]}
    assert report.Target("hindsight", 2.2, of_limit=True).verdict({"hindsight": row}) == ("met", 2.0)
    assert report.fastest_peer(row) is None


@needs_compiler
def test_the_limit_answers_for_every_operation(tmp_path):
    program = compile_limit(tmp_path)
    assert program is not None
    with Limit(program, 1000) as limit:
        assert all(limit.block(operation.limit, 2) > 0 for operation in OPERATIONS)
        with pytest.raises(RuntimeError, match="gave no time for 'dance'"):
            limit.block("dance", 1)


def test_a_missing_peer_is_named_with_its_install_command(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert replay.contenders(no_peers=False) == [replay.Replaylab]
    lines = capsys.readouterr().out.splitlines()
    assert 'rlox: not installed: pip install "replaylab[bench]"' in lines
    assert len(lines) == len(replay.PEERS)


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
    row = {
        "replaylab": np.array([1.0, 1.0, 9.0]),
        "replaylab derived": np.array([0.1, 0.1, 0.1]),
        "rlox": np.array([5.0, 5.0, 1.0]),
        "cpprb": np.array([6.0, 6.0, 6.0]),
        "limit": np.array([0.4, 0.4, 0.4]),
    }
    times = {"draw": row}
    assert report.Target("draw", 5.0).verdict(times) == ("met", 5.0)
    assert report.Target("draw", 5.5).verdict(times) == ("not met", 5.0)
    assert report.Target("draw", 5.5, among=("cpprb", "SB3")).verdict(times) == ("met", 6.0)
    assert report.Target("draw", 1.5, of_limit=True).verdict(times) == ("not met", 2.5)
    assert report.Target("draw", 1.5, among=("SB3",)).verdict(times) == ("not measured", None)
    assert report.Target("update", 1.5).verdict(times) == ("not measured", None)
    assert report.fastest_peer(row) == "rlox"


def test_the_table_holds_times_and_memory():
    times = {"draw": {"replaylab": np.array([1.0]), "rlox": np.array([5.0])}}
    lines = report.table(times, {"bytes a step": {"replaylab": 10.0, "rlox": 20.0, "SB3": None}}).splitlines()
    assert any("rlox *" in line and "5.00" in line for line in lines)
    assert lines[-1].split() == ["rlox", "*", "20", "2.00"]


def test_every_target_names_a_row_and_peers_that_exist():
    rows = {work.name: scene.drawers for scene in replay.SCENES.values() for work in scene.works}
    plain = {operation.name: replay.PEERS for operation in OPERATIONS}
    for target in report.TARGETS:
        assert set(target.among) <= {kind.label for kind in (rows | plain)[target.operation]}
