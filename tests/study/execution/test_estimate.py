"""A dry run: the whole grid, times that fit, and nothing left behind."""

from dataclasses import replace

import pytest

from replaylab.study import InProcess
from replaylab.study.execution.estimate import CellEstimate, Estimate
from replaylab.study.execution.worker.calibration import Speed, _limit, _pace
from replaylab.study.results.folder import StudyFolder
from tests.study.tiny import pretended, study


def test_a_dry_run_tells_the_grid_and_writes_nothing(tmp_path):
    tiny = study(tmp_path / "out", environments=["CartPole-v1", "tests.study.failing:Fails-v0"])
    estimate = tiny.estimate(workers=1, seconds=0.2)
    assert not (tmp_path / "out").exists()
    lines = str(estimate).splitlines()
    assert lines[0] == "environments: CartPole-v1, tests.study.failing:Fails-v0"
    assert lines[3:5] == [
        "seeds: 4 each; 16 runs in all",
        "0 runs are there already; 16 to do in 8 chunks, 4,800 steps",
    ]
    assert "  CartPole-v1 · dqn · uniform: 4 runs of 300 steps, " in lines[5]
    assert lines[7] == "  tests.study.failing:Fails-v0 · dqn · uniform: FAILS: RuntimeError: it broke"
    short, long = estimate.seconds
    assert 0 < short <= long
    assert lines[-2].startswith("expected time: ")
    assert lines[-1].startswith("expected disk: ")


def test_what_is_there_is_not_timed(tmp_path):
    tiny = pretended(tmp_path, 1.0)
    estimate = tiny.estimate()
    assert estimate.todo == ()
    assert estimate.seconds == (0.0, 0.0)
    assert "all there" in str(estimate)


def test_time_and_disk_by_hand(tmp_path):
    """Four chunks of 300 steps and three evaluations, each 1 + 3 + 3·2 s, to two workers: 2·10 s."""
    tiny = study(tmp_path)
    speed = Speed(start=1.0, step=0.01, evaluation=2.0, longest=50.0, limit=500.0, bytes=7.0)
    of = {s: tuple(p for p in tiny.chunks if p.strategy == s) for s in tiny.spec.strategies}
    cells = tuple(CellEstimate("CartPole-v1", "dqn", s, of[s], speed) for s in of)
    estimate = Estimate(tiny.spec, cells, tuple(tiny.chunks), (), 2)
    assert estimate.seconds == pytest.approx((20.0, 2 * (1 + 3 + 60)))
    assert estimate.bytes == 4 * 300 * 7


def test_what_runs_again_for_its_draws_is_counted(tmp_path):
    """Of two strategies the placebo is missing, and the tapes that it replays; each chunk takes 1 + 3 + 3·2 s."""
    strategies = {"td": {"type": "prioritized"}, "placebo": {"type": "tape", "of": "td"}}
    tiny = pretended(tmp_path, 1.0, strategies=strategies, baseline="td")
    placebos = [p for p in tiny.chunks if p.tape_of is not None]
    for placebo in placebos:
        tiny.file_of(placebo).unlink()
    tape = StudyFolder(tiny.spec, tiny.folder).tape_file(placebos[0].tape_of)
    tape.parent.mkdir()
    tape.write_bytes(b"damaged")
    estimate = tiny.estimate(executor=InProcess(), seconds=0.0)
    assert [p.strategy for p in estimate.todo] == ["td", "placebo"] * 2
    assert [p.strategy for p in estimate.again] == ["td"] * 2
    assert estimate.skipped == ()
    assert str(estimate).splitlines()[4:6] == [
        "0 runs are there already; 8 to do in 4 chunks, 2,400 steps",
        "4 of these, of td, run again: their rows are there, the draws that tapes replay are not",
    ]
    assert tape.read_bytes() == b"damaged"  # a dry run writes nothing

    speed = Speed(start=1.0, step=0.01, evaluation=2.0, longest=50.0, limit=50.0, bytes=7.0)
    cells = tuple(replace(cell, speed=speed) for cell in estimate.cells)
    assert [replace(estimate, cells=cells, workers=n).seconds[0] for n in (1, 2, 4)] == pytest.approx(
        [40.0, 20.0, 20.0]
    )


def test_the_evaluation_is_reported_from_the_steps():
    times = [(100, 1.0), (200, 2.0), (300, 3.0), (400, 9.0)]
    assert _pace(times, 400, 10.5) == {"step": 0.01, "evaluation": 5.0, "start": pytest.approx(1.5)}


@pytest.mark.parametrize(
    ("name", "options", "limit"),
    [
        ("CartPole-v1", {}, 500),
        ("CartPole-v1", {"max_episode_steps": 30}, 30),
        ("CartPole-v1", {"max_episode_steps": -1}, None),
        ("PongNoFrameskip-v4", {}, 27_000),
        ("PongNoFrameskip-v4", {"max_num_frames_per_episode": 400}, 100),
    ],
)
def test_the_limit_of_episodes_is_that_of_the_options(tmp_path, name, options, limit):
    if name.startswith("Pong"):
        pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
        pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    chunk = study(tmp_path).chunks[0]
    assert _limit(chunk.model_copy(update={"environment": name, "env_options": options})) == limit
