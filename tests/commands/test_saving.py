"""Where ``replaylab train`` saves: nothing is replaced by mistake, and runs continue being saved as often."""

from pathlib import Path

from replaylab.commands import main as cli
from replaylab.learners import Checkpoints, QLearning, TrainingConfig, train
from replaylab.replay import Uniform

SHORT = ["train", "--env", "FrozenLake-v1", "--learner", "q_learning", "--learner-options", "batch_size=4"]
SHORT += ["--seeds", "1", "--eval-episodes", "1"]


def test_a_run_that_was_saved_from_python_is_not_overwritten(tmp_path, capsys):
    made = TrainingConfig("FrozenLake-v1", QLearning(batch_size=4), Uniform(), total_steps=100, eval_every=None)
    train(made, [0], [Checkpoints(tmp_path, 50)])
    before = (tmp_path / "agents-0.npz").read_bytes()
    assert cli.main([*SHORT, "--steps", "50", "--save", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--save must be a folder without a run" in said
    assert "--resume" not in said
    assert (tmp_path / "agents-0.npz").read_bytes() == before


def test_places_that_would_replace_each_other_are_refused(tmp_path, capsys):
    one = str(tmp_path / "one")
    assert cli.main([*SHORT, "--steps", "50", "--save", one, "--out", one]) == 2
    assert "must be two places" in capsys.readouterr().err
    assert not Path(one).exists()
    for name in ("chunk.json", "agents-0.npz"):
        assert cli.main([*SHORT, "--steps", "50", "--save", one, "--out", f"{one}/{name}"]) == 2
        assert "must not be named as what is saved" in capsys.readouterr().err
    assert cli.main([*SHORT, "--steps", "50", "--save", one, "--out", f"{one}/rows.parquet"]) == 0


def test_a_run_goes_on_being_saved_as_often(tmp_path, monkeypatch):
    saved = []

    class Counted(Checkpoints):
        def __init__(self, folder, every):
            saved.append(every)
            super().__init__(folder, every)

    monkeypatch.setattr("replaylab.learners.Checkpoints", Counted)
    folder = str(tmp_path / "run")
    assert cli.main([*SHORT, "--steps", "100", "--save", folder, "--save-every", "40"]) == 0
    assert cli.main(["train", "--resume", folder]) == 0
    assert cli.main(["train", "--resume", folder, "--save-every", "30"]) == 0
    assert cli.main(["train", "--resume", folder]) == 0
    (tmp_path / "run" / "saving.json").unlink()
    assert cli.main(["train", "--resume", folder]) == 0
    assert saved == [40, 40, 30, 30, 10]
