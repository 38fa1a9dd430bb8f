"""Where ``replaylab train`` saves: nothing is replaced by mistake, and runs continue being saved as often."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replaylab.commands import main as cli
from replaylab.learners import Checkpoints, QLearning, TrainingConfig, train
from replaylab.replay import Uniform

SHORT = ["train", "--env", "FrozenLake-v1", "--learner", "q_learning", "--learner-options", "batch_size=4"]
SHORT += ["--seeds", "1", "--eval-episodes", "1"]


def test_a_run_that_was_saved_from_python_is_not_overwritten(tmp_path, capsys):
    config = TrainingConfig("FrozenLake-v1", QLearning(batch_size=4), Uniform(), total_steps=100, eval_every=None)
    train(config, [0], [Checkpoints(tmp_path, 50)])
    before = (tmp_path / "agents-0.npz").read_bytes()
    assert cli.main([*SHORT, "--steps", "50", "--save", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--save must be a folder without a run" in said
    assert "--resume" not in said
    assert (tmp_path / "agents-0.npz").read_bytes() == before


def test_places_that_would_replace_each_other_are_refused(tmp_path, capsys):
    folder = str(tmp_path / "one")
    assert cli.main([*SHORT, "--steps", "50", "--save", folder, "--out", folder]) == 2
    assert "must be two places" in capsys.readouterr().err
    assert not Path(folder).exists()
    for name in ("chunk.json", "agents-0.npz"):
        assert cli.main([*SHORT, "--steps", "50", "--save", folder, "--out", f"{folder}/{name}"]) == 2
        assert "must not be named as what is saved" in capsys.readouterr().err
    assert cli.main([*SHORT, "--steps", "50", "--save", folder, "--out", f"{folder}/rows.parquet"]) == 0


def test_a_run_goes_on_being_saved_as_often(tmp_path, monkeypatch):
    saved = []

    class Counted(Checkpoints):
        def __init__(self, folder, every):
            saved.append(every)
            super().__init__(folder, every)

    monkeypatch.setattr("replaylab.commands.train.Checkpoints", Counted)
    folder = str(tmp_path / "run")
    assert cli.main([*SHORT, "--steps", "100", "--save", folder, "--save-every", "40"]) == 0
    assert cli.main(["train", "--resume", folder]) == 0
    assert cli.main(["train", "--resume", folder, "--save-every", "30"]) == 0
    assert cli.main(["train", "--resume", folder]) == 0
    (tmp_path / "run" / "saving.json").unlink()
    assert cli.main(["train", "--resume", folder]) == 0
    assert saved == [40, 40, 30, 30, 10]


MODULE = """
import gymnasium as gym
from tests.commands.failing import Fails
from tests.study.own_parts import Fresh, HalfAlpha
if "Moved-v0" not in gym.registry:
    gym.register("Moved-v0", Fails, max_episode_steps=5, kwargs={})
"""


@pytest.mark.parametrize(
    "parts",
    [
        ["--strategy", "moved_parts:Fresh"],
        ["--learner", "moved_parts:HalfAlpha"],
        ["--env", "moved_parts:Moved-v0"],
    ],
)
def test_resuming_elsewhere_names_a_missing_or_changed_module(parts, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "moved_parts.py").write_text(MODULE)
    code = "from replaylab.commands.main import main; raise SystemExit(main())"

    def train_in(folder, *arguments):
        process = subprocess.run(
            [sys.executable, "-c", code, "train", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
        )
        return process.returncode, process.stderr

    options = {"--env": "FrozenLake-v1", "--learner": "q_learning", "--learner-options": "batch_size=4"}
    options |= {"--steps": "40", "--seeds": "1", "--eval-episodes": "1", "--save": str(tmp_path / "run")}
    assert train_in(here, *parts, *(word for pair in options.items() for word in pair if pair[0] != parts[0])) == (
        0,
        "",
    )
    resume = ["--resume", str(tmp_path / "run")]
    assert train_in(here, *resume) == (0, "")
    status, reported = train_in(elsewhere, *resume)
    assert (status, f"no module 'moved_parts' was found in {elsewhere}" in reported) == (2, True), reported
    (elsewhere / "moved_parts.py").write_text(MODULE + "#")
    status, reported = train_in(elsewhere, *resume)
    wanted = f"the module moved_parts ({elsewhere / 'moved_parts.py'}) has changed since this run was defined"
    assert (status, wanted in reported) == (2, True), reported
