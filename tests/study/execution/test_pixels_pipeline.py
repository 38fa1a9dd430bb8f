"""Pixels from the command line to the video: frames stored once, a convolutional double DQN, TensorBoard, rows."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from PIL import Image

from replaylab.commands import main as cli
from replaylab.commands import train as command
from replaylab.learners.training.preflight import check_trainable
from replaylab.study import plan
from replaylab.study.catalog import find
from replaylab.study.execution.worker.preflight import check_chunk, largest_of_each
from replaylab.study.spec.spec import Spec
from tests.learners.dqn import pixels

EQUAL_SETTINGS = Path(__file__).parents[3] / "docs/results/pong/equal-settings/study.toml"
COMMAND = (
    "train --seeds 1 --steps 60 --eval-every 30 --eval-episodes 1 --held-out 5 "
    "--transforms frame_stack:stacked_input=true "
    "--learner-options batch_size=4 capacity=100 learning_starts=10 train_period=4 target_period=5"
)


def train(tmp_path, env_id, *more):
    options = [*COMMAND.split(), "--env", env_id, "--out", str(tmp_path / "rows.parquet"), *more]
    options += ["--tensorboard", str(tmp_path / "board"), "--video", str(tmp_path / "greedy.gif")]
    return cli.main(options)


def metrics(tmp_path):
    recorded = duckdb.sql(f"SELECT metric, step FROM '{tmp_path / 'rows.parquet'}' ORDER BY step").fetchall()
    return {name: [step for metric, step in recorded if metric == name] for name, _ in recorded}


def scalars(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulators.EventAccumulator(str(tmp_path / "board" / "seed-0"))
    board.Reload()
    return set(board.Tags()["scalars"])


def test_the_whole_pipeline_on_a_tiny_game(tmp_path, capsys):
    assert train(tmp_path, pixels.ENV_ID) == 0
    reported = capsys.readouterr().out
    assert "greedy episode of seed 0" in reported
    assert "terminated: " in reported
    rows = metrics(tmp_path)
    assert rows["eval/mean_reward"] == rows["eval/held_out_q"] == [30, 60]
    assert len(rows["rollout/ep_rew"]) > 5
    with Image.open(tmp_path / "greedy.gif") as video:
        assert video.size == (pixels.SIDE, pixels.SIDE)
        assert 5 <= video.n_frames <= pixels.LIMIT + 1
    assert {"eval/mean_reward", "eval/held_out_q"} <= scalars(tmp_path)


@pytest.mark.filterwarnings("ignore:.*is not in the possible render_modes")
def test_a_video_that_cannot_be_is_reported_before_training(tmp_path, capsys):
    assert cli.main(["train", "--env", "replaylab/BitFlip-v0", "--video", str(tmp_path / "a.gif")]) == 2
    assert "replaylab/BitFlip-v0 cannot be made with render_mode='rgb_array'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_whole_pipeline_on_pong(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")
    monkeypatch.setattr(command._Film, "max_steps", 30)
    few = ["--steps", "30", "--eval-every", "15", "--env-options", "max_num_frames_per_episode=200"]
    assert train(tmp_path, "ALE/Pong-v5", *few) == 0
    assert "30 steps, return " in capsys.readouterr().out
    with Image.open(tmp_path / "greedy.gif") as video:
        assert video.size == (160, 210)
    assert metrics(tmp_path)["eval/held_out_q"] == [15, 30]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pong", marks=pytest.mark.slow),
        pytest.param(EQUAL_SETTINGS, marks=pytest.mark.slow, id="equal-settings"),
        "pong-full",
    ],
)
def test_the_studies_of_pong_fit_the_game(name):
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    for chunk in largest_of_each(plan.plan(Spec.from_toml(find(name)))):
        check_chunk(chunk)


def test_the_study_for_a_gpu_fits_the_game():
    """On the processor, with fewer games and smaller batches."""
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    for chunk in largest_of_each(plan.plan(Spec.from_toml(find("pong-gpu")))):
        configuration = chunk.configuration()
        small = replace(configuration.learner, device="cpu", envs=2, batch_size=4)
        check_trainable(replace(configuration, learner=small))
