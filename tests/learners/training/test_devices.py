"""Pong from pixels on a device, with all that a long run has, for a few hundred steps."""

import numpy as np
import pytest

from replaylab.learners import DQN
from replaylab.learners.training import checkpoint
from replaylab.replay import FrameStack, NStep, Prioritized, Uniform
from tests.learners.calls import train

pytestmark = pytest.mark.usefixtures("full_precision")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
GAME = {"max_num_frames_per_episode": 400, "screen_size": 44}
STEPS = 200


@pytest.fixture(autouse=True)
def atari():
    pytest.importorskip("ale_py", reason="the extra `atari` is not installed")
    pytest.importorskip("cv2", reason="the extra `atari` is not installed")


def learner(device, **changes):
    settings = {
        "pixel_network": "data_efficient",
        "dueling": True,
        "learning_rate": 2.5e-4,
        "batch_size": 16,
        "learning_starts": 60,
        "train_period": 4,
        "target_period": 20,
        "capacity": 400,
    }
    return DQN(device=device, **settings | changes)


def pong(of, sampler, steps=STEPS, **options):
    transforms = [NStep(3, gamma=of.gamma), FrameStack(4, stacked_input=True)]
    usual = {"env_options": GAME, "transforms": transforms, "eval_every": None, "log_every": 10, "eval_episodes": 1}
    return train("PongNoFrameskip-v4", of, sampler, [3], steps, **usual | options)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), DEVICES[1]])
@pytest.mark.parametrize("network", ["data_efficient", pytest.param("nature", marks=pytest.mark.slow)])
def test_pong_learns_the_same_on_a_device(network, device):
    """With random play and uniform draws both see the same batches, so that only rounding tells them apart.

    Learning is slow: at 2.5e-4 rounding grows a thousandfold within sixty updates.
    """
    slow = {"epsilon": 1.0, "learning_rate": 1e-5}
    reference, on_device = (
        pong(learner(where, pixel_network=network, **slow), Uniform(), held_out=20, eval_every=STEPS)
        for where in ("cpu:0", device)
    )
    assert (on_device.columns["metric"] == reference.columns["metric"]).all()
    same = {"rollout/ep_rew", "rollout/ep_len", "train/updates", "replay/transitions_replayed", "replay/age_mean"}
    for name in sorted(set(on_device.columns["metric"])):
        if name.startswith("eval/mean_"):  # greedy play may follow another action of equal value
            continue
        values, wanted = on_device.of(name)[1], reference.of(name)[1]
        np.testing.assert_allclose(values, wanted, rtol=0 if name in same else 1e-2, atol=0 if name in same else 1e-3)
    assert reference.of("train/updates")[1][-1] == (STEPS - 60) // 4 + 1
    losses = reference.of("train/loss")[1]
    assert len(losses) >= 10
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), DEVICES[1]])
def test_prioritized_pong_goes_on_from_a_checkpoint_on_a_device(device, tmp_path, monkeypatch):
    """Bit for bit on the processor; on a GPU, whose sums have no fixed order, as near as rounding (random play)."""
    of = learner(device, epsilon=1.0 if device == "cuda" else 0.2)
    unbroken = pong(of, Prioritized(), eval_every=STEPS)
    save = checkpoint.save

    def dies(*args):
        save(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            pong(of, Prioritized(), eval_every=STEPS, save=tmp_path, save_every=100)
    again = pong(of, Prioritized(), eval_every=STEPS, resume=tmp_path)
    assert (again.columns["step"] == unbroken.columns["step"]).all()
    assert (again.columns["metric"] == unbroken.columns["metric"]).all()
    if device == "cpu":
        np.testing.assert_array_equal(again.columns["value"], unbroken.columns["value"])
        return
    for name in ("rollout/ep_rew", "rollout/ep_len", "train/updates", "replay/transitions_replayed"):
        np.testing.assert_array_equal(again.of(name)[1], unbroken.of(name)[1])
    before = again.of("train/loss")[0] <= 100
    np.testing.assert_allclose(again.of("train/loss")[1][before], unbroken.of("train/loss")[1][before], rtol=1e-2)
    assert np.isfinite(again.of("train/loss")[1]).all()
