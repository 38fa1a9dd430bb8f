"""`replaylab watch`: a video of a saved run, and its error messages."""

import json
import shutil

import pytest
from PIL import Image

from replaylab.commands import main as cli
from tests.learners.dqn import pixels

TRAIN = (
    "train --seeds 2 --steps 60 --eval-every 60 --eval-episodes 1 --strategy prioritized --learner-options "
    "batch_size=4 capacity=30 learning_starts=10 train_period=4"
)


def train(folder, env_id, *more):
    assert cli.main([*TRAIN.split(), "--env", env_id, "--save", str(folder), *more]) == 0


@pytest.fixture(scope="module")
def dots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "dots"
    train(folder, pixels.ENV_ID, "--save-every", "50", "--transforms", "frame_stack:stacked_input=true")
    return folder


def watch(capsys, *options):
    capsys.readouterr()
    code = cli.main(["watch", *map(str, options)])
    reported = capsys.readouterr()
    return code, reported.out, reported.err


def test_a_video_is_written_into_the_folder(dots, capsys):
    code, out, _ = watch(capsys, dots)
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith("greedy episode of seed 0, ")
    assert " terminated: " in out
    assert list(dots.glob("greedy-0.*"))


def test_a_video_of_another_seed_is_written_to_its_path(dots, tmp_path, capsys):
    code, out, _ = watch(capsys, dots, "--seed", 1, "--video", tmp_path / "b.webp", "--max-steps", 3)
    assert code == 0
    assert out.startswith("greedy episode of seed 1, ")
    with Image.open(tmp_path / "b.webp") as video:
        assert video.n_frames == 4


def test_before_the_end_the_agent_is_that_of_the_checkpoint(dots, tmp_path, capsys):
    for agent in dots.glob("agents-*.npz"):
        agent.rename(tmp_path / agent.name)
    try:
        assert watch(capsys, dots, "--video", tmp_path / "c.gif")[0] == 0
    finally:
        for agent in tmp_path.glob("agents-*.npz"):
            agent.rename(dots / agent.name)


def test_a_run_without_agent_and_checkpoint_is_refused(dots, tmp_path, capsys):
    shutil.copy(dots / "chunk.json", tmp_path)
    code, _, err = watch(capsys, tmp_path)
    assert code == 2
    assert f"{tmp_path} holds no checkpoint: there is no run.json in it; train with --save-every" in err


def test_what_is_no_run(tmp_path, capsys):
    code, _, err = watch(capsys, tmp_path)
    assert (code, "holds no run: there is no chunk.json in it" in err) == (2, True)
    (tmp_path / "study.json").write_text(json.dumps({}))
    code, _, err = watch(capsys, tmp_path)
    assert (code, "holds a study's results, whose report has the videos" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "7"], "--seed must be one of the run's, 0, 1, but got 7"),
        (["--max-steps", "0"], "--max-steps must be at least 1, but got 0"),
    ],
)
def test_wrong_options(dots, options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = watch(capsys, dots, *options)
    assert (code, message in err) == (2, True)
    assert not list(tmp_path.iterdir())
