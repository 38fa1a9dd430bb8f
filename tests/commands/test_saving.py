"""Where ``replaylab train`` saves: nothing is replaced by mistake, and runs continue being saved as often."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

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


PARTS = {"--strategy": "moved_parts:Fresh", "--learner": "moved_parts:HalfAlpha", "--env": "moved_parts:Moved-v0"}


def train_in(folder, commands):
    """Run commands in a process in `folder`; return their statuses and the lines of errors."""
    process = subprocess.run(
        [sys.executable, "-c", f"from replaylab.commands.main import main; print(*map(main, {commands}))"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
    )
    return process.stdout.splitlines()[-1], process.stderr.splitlines()


def test_resuming_elsewhere_names_a_missing_or_changed_module(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "moved_parts.py").write_text(MODULE)
    runs = [str(tmp_path / option) for option in PARTS]
    options = ["--steps", "40", "--seeds", "1", "--eval-episodes", "1"]
    parts = {"--env": "FrozenLake-v1", "--learner": "q_learning", "--learner-options": "batch_size=4"}
    commands = [
        ["train", *options, "--save", run, *itertools.chain(*(parts | {option: name}).items())]
        for run, (option, name) in zip(runs, PARTS.items(), strict=True)
    ]
    assert train_in(here, commands) == ("0 0 0", [])
    resume = [["train", "--resume", run] for run in runs]
    assert train_in(here, resume) == ("0 0 0", [])
    statuses, errors = train_in(elsewhere, resume)
    assert statuses == "2 2 2"
    missing = f"no module 'moved_parts' was found in {elsewhere}"
    assert [missing in error for error in errors] == [True] * 3, errors
    (elsewhere / "moved_parts.py").write_text(MODULE + "#")
    statuses, errors = train_in(elsewhere, resume)
    assert statuses == "2 2 2"
    changed = f"the module moved_parts ({elsewhere / 'moved_parts.py'}) has changed since this run was defined"
    assert [changed in error for error in errors] == [True] * 3, errors
