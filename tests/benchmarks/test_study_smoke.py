"""The cost of a study beside the loop's, on a study of seconds."""

import json
import math

import pytest

from benchmarks import study as bench
from replaylab.study import InProcess, Study

TOML = """
name = "small"
environments = ["CartPole-v1"]
seeds = 2
[budget]
steps = 200
[evaluation]
every = 200
episodes = 1
[learners.dqn]
type = "dqn"
learning_starts = 64
[strategies.uniform]
type = "uniform"
"""


def test_the_loops_time_is_for_the_studys_steps(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(TOML)
    study = Study.from_toml(tmp_path / "small.toml", tmp_path / "out")
    study.run(executor=InProcess())
    monkeypatch.setattr(bench, "speed", lambda env_id, steps, rounds: 50.0)
    (cost,) = bench.costs(tmp_path / "out", 100, 1)
    assert (cost.environment, cost.steps) == ("CartPole-v1", 400)
    assert cost.loop == pytest.approx(8.0)
    timing = [json.loads(path.read_text())["seconds"] for path in (tmp_path / "out" / "timing").glob("*.json")]
    assert cost.study == pytest.approx(math.fsum(timing))


def test_goal_environments_stand_beside_what_they_are_made_of():
    assert bench.plain_id("replaylab/AcrobotGoal-v0") == "Acrobot-v1"
    assert bench.plain_id("CartPole-v1") == "CartPole-v1"
