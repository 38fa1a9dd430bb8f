"""``replaylab train --device``."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from replaylab.commands.train_command import TrainCommand
from replaylab.errors import SpecError
from replaylab.learners import DQN
from replaylab.replay import FrameStack, NStep

PONG = "ALE/Pong-v5"


def test_a_game_is_stepped_in_threads_with_frames_stored_once():
    command = TrainCommand(env=PONG, device="cuda", transforms=("n_step:steps=3",), learner_options=("batch_size=256",))
    configuration = command.chunk().configuration()
    assert configuration.learner == DQN(device="cuda", replay="device", envs=64, batch_size=256)
    assert configuration.env_options == {"backend": "ale"}
    assert list(configuration.transforms) == [NStep(3, 0.99), FrameStack(4, padding="zero", stacked_input=True)]
    assert configuration.measure_every is None
    assert command.chunk().seeds == (0,)


def test_what_is_given_counts():
    options = {"env_options": ('backend="ale"', "frame_stack=2"), "learner_options": ("envs=8",), "device": "cuda"}
    command = TrainCommand(env=PONG, transforms=("frame_stack:length=2,stacked_input=true",), **options)
    configuration = command.chunk().configuration()
    assert configuration.learner.envs == 8
    assert list(configuration.transforms) == [FrameStack(2, stacked_input=True)]
    alone = TrainCommand(env=PONG, device="cuda", env_options=("frame_stack=1",)).chunk().configuration()
    assert not alone.transforms
    assert TrainCommand(device="cuda").chunk().configuration().learner.envs == 1
    with pytest.raises(SpecError, match="must give each name once, but got device 2 times"):
        TrainCommand(device="cuda", learner_options=("device=cpu",)).chunk()


def test_it_trains_and_writes_rows(tmp_path, capsys):
    out = tmp_path / "rows.parquet"
    settings = ("envs=4", "learning_starts=40", "capacity=100", "hidden=[8]", "precision=bfloat16")
    command = TrainCommand(device="cpu", steps=200, eval_every=100, eval_episodes=1, learner_options=settings, out=out)
    assert command() == 0
    rows = pq.read_table(out).to_pydict()
    evaluated = np.array(rows["metric"]) == "eval/mean_reward"
    assert np.array(rows["step"])[evaluated].tolist() == [100, 200]
    assert "final return" in capsys.readouterr().out
