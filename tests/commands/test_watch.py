"""`replaylab watch`: a video and a sheet of a saved run, and what it says where there is none."""

import json

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


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    train(folder, "CartPole-v1")
    return folder


def watch(capsys, *options):
    capsys.readouterr()
    code = cli.main(["watch", *map(str, options)])
    reported = capsys.readouterr()
    return code, reported.out, reported.err


def test_both_are_written_into_the_folder(dots, capsys):
    code, out, _ = watch(capsys, dots)
    assert code == 0
    video, sheet = out.splitlines()
    assert video.startswith("greedy episode of seed 0, ")
    assert " terminated: " in video
    assert sheet.startswith("replay of seed 0 after 50 steps, 30 steps stored, ")
    assert sheet.endswith(f": {dots / 'replay-0.png'}")
    with Image.open(dots / "replay-0.png") as image:
        assert image.width > 1_500
    assert list(dots.glob("greedy-0.*"))


def test_one_alone_of_another_seed(dots, tmp_path, capsys):
    code, out, _ = watch(capsys, dots, "--seed", 1, "--sheet", tmp_path / "a.svg", "--places", 2)
    assert (code, out.count("\n")) == (0, 1)
    assert "seed 1 after 50 steps" in out
    drawn = (tmp_path / "a.svg").read_text()
    assert "Highest priority" in drawn
    assert drawn.count("<image") == 6
    assert watch(capsys, dots, "--video", tmp_path / "b.webp", "--max-steps", 3)[0] == 0
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


def test_without_pictures_there_is_a_video_alone(cartpole, tmp_path, capsys):
    code, out, _ = watch(capsys, cartpole, "--max-steps", 5)
    assert code == 0
    assert "greedy episode of seed 0" in out
    assert "not written: a sheet of what is replayed needs observations that are pictures" in out
    code, _, err = watch(capsys, cartpole, "--sheet", tmp_path / "a.png")
    assert code == 2
    assert "needs observations that are pictures" in err
    assert not list(tmp_path.iterdir())


def test_the_oracle_hears_of_the_agents_here_too(tmp_path, capsys):
    options = (
        "train --env CliffWalking-v1 --learner q_learning --learner-options batch_size=4 --strategy oracle --steps 100"
    )
    more = "--seeds 1 --eval-episodes 1 --eval-every 100 --env-options max_episode_steps=50 --save"
    assert cli.main([*options.split(), *more.split(), str(tmp_path)]) == 0
    code, out, _ = watch(capsys, tmp_path, "--max-steps", 5)
    assert code == 0
    assert "greedy episode of seed 0" in out
    assert "not written: a sheet of what is replayed needs observations that are pictures" in out


def test_without_a_checkpoint(tmp_path, capsys):
    train(tmp_path, pixels.ENV_ID, "--save-every", "100")
    code, _, err = watch(capsys, tmp_path, "--sheet", tmp_path / "a.png")
    assert code == 2
    assert f"{tmp_path} holds no checkpoint: there is no run.json in it; train with --save-every" in err


def test_what_is_no_run(tmp_path, capsys):
    code, _, err = watch(capsys, tmp_path)
    assert (code, "holds no run: there is no chunk.json in it" in err) == (2, True)
    (tmp_path / "study.json").write_text(json.dumps({}))
    code, _, err = watch(capsys, tmp_path)
    assert (code, "holds a study's results, whose report has the sheets" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "7"], "--seed must be one of the run's, 0, 1, but got 7"),
        (["--places", "0"], "--places must be at least 1, but got 0"),
        (["--max-steps", "0"], "--max-steps must be at least 1, but got 0"),
        (["--sheet", "a.jpeg"], "--sheet must end in .png or .svg, but got a.jpeg"),
    ],
)
def test_wrong_options(dots, options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = watch(capsys, dots, *options)
    assert (code, message in err) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # a study of Pong with its pictures: tests/study/execution/test_pixels_pipeline.py
def test_pong_goes_on_from_its_checkpoint_to_video_and_sheet(tmp_path, capsys):
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    options = "--seeds 1 --steps 50 --eval-every 50 --env-options max_num_frames_per_episode=100"
    train(
        tmp_path / "run",
        "ALE/Pong-v5",
        "--save-every",
        "40",
        "--transforms",
        "frame_stack:stacked_input=true",
        *options.split(),
    )
    code, out, _ = watch(
        capsys, tmp_path / "run", "--sheet", tmp_path / "a.png", "--video", tmp_path / "b.gif", "--max-steps", 9
    )
    assert code == 0
    assert "9 steps, return " in out
    assert "replay of seed 0 after 40 steps, 30 steps stored, " in out
    with Image.open(tmp_path / "b.gif") as video:
        assert video.size == (160, 210)
    assert (tmp_path / "a.png").stat().st_size < 120_000
