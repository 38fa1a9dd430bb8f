"""Event files, read back by TensorBoard's own reader."""

import time

import numpy as np
import pytest

from replaylab.errors import MissingExtraError
from replaylab.learners import DQN, Checkpoints, Hook, TrainingConfig
from replaylab.learners import train as train_configuration
from replaylab.replay import Uniform
from replaylab.watch import TensorBoard, tensorboard
from tests.learners.calls import train

pytest.importorskip("tensorboard")


def read(folder):
    """Return {tag: [(step, value), ...]} of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), {"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_what_train_measures(tmp_path):
    seeds = [4, 9]
    learner = DQN(hidden=(8,), batch_size=8, learning_starts=20, target_period=10)
    with TensorBoard(tmp_path, seeds) as board:
        metrics = train(
            "CartPole-v1",
            learner,
            Uniform(),
            seeds,
            300,
            log_every=50,
            eval_every=150,
            eval_episodes=1,
            hooks=[board],
        )
    for seed in seeds:
        content = read(tmp_path / f"seed-{seed}")
        for tag in ("eval/mean_reward", "eval/mean_ep_length", "rollout/exploration_rate", "train/loss"):
            steps, values = metrics.of(tag, seed)
            assert [step for step, _ in content[tag]] == steps.tolist()
            np.testing.assert_array_equal([value for _, value in content[tag]], values.astype(np.float32))
        assert content["train/n_updates"][-1] == (300, 281.0)
        assert "train/updates" not in content
        _, returns = metrics.of("rollout/ep_rew", seed)
        assert content["rollout/ep_rew_mean"][-1] == (300, np.float32(returns[-100:].mean()))
        assert all(fps > 0 for _, fps in content["time/fps"])


@pytest.mark.parametrize("budget", [{"total_steps": 300}, {"total_episodes": 12}])
def test_returns_are_shown_before_anything_is_learned(tmp_path, budget):
    learner = DQN(hidden=(8,), batch_size=8, learning_starts=budget.get("total_steps", 10_000) - 10, epsilon=1.0)
    every = max(budget.values()) // 3
    with TensorBoard(tmp_path, [4, 9]) as board:
        metrics = train(
            "CartPole-v1", learner, Uniform(), [4, 9], log_every=every, eval_every=None, hooks=[board], **budget
        )
    for seed in (4, 9):
        ends, returns = metrics.of("rollout/ep_rew", seed)
        content = read(tmp_path / f"seed-{seed}")
        first, *later = content["rollout/ep_rew_mean"]
        assert first == content["rollout/ep_len_mean"][0] == (ends[0], returns[0])
        due = [int(ends[ends >= step][0]) for step in (every, 2 * every)]
        assert [step for step, _ in later][:2] == due
        assert later[1][1] == np.float32(returns[ends <= due[1]].mean())
        assert len(later) <= 4


def test_a_seed_that_has_ended_is_left_out(tmp_path):
    with TensorBoard(tmp_path, [0, 1]) as board:
        board.on_metrics(10, {"a": np.array([1.0, 2.0])})
        board.on_metrics(20, {"a": np.array([np.nan, 3.0])})
    assert read(tmp_path / "seed-0")["a"] == [(10, 1.0)]
    assert read(tmp_path / "seed-1")["a"] == [(10, 2.0), (20, 3.0)]


class Kill(Hook):
    """As the end of the process, when the slowest replica has come so far."""

    def __init__(self, at):
        self.at = at

    def after_turn(self, run):
        if run.clock.now.min() >= self.at:
            raise InterruptedError


@pytest.mark.parametrize(
    ("budget", "every", "killed_at"),
    [({"total_steps": 300}, 100, 260), ({"total_episodes": 30}, 10, 16)],
    ids=["steps", "episodes"],
)
def test_a_resumed_run_holds_each_step_once(tmp_path, budget, every, killed_at):
    """With train_period=13 the checkpoint comes between the tenth episode's end and its values of learning."""
    seeds, learner = [4, 9], DQN(hidden=(8,), batch_size=8, learning_starts=20, train_period=13)
    config = TrainingConfig(
        "CartPole-v1", learner, Uniform(), eval_every=every // 5, eval_episodes=1, log_every=every // 2, **budget
    )
    saved = tmp_path / "saved"
    with TensorBoard(tmp_path / "unbroken", seeds) as board:
        train_configuration(config, seeds, [board])
    with TensorBoard(tmp_path / "resumed", seeds) as board, pytest.raises(InterruptedError):
        train_configuration(config, seeds, [Checkpoints(saved, every), board, Kill(killed_at)])
    time.sleep(1.0)  # TensorBoard reads the files in the order of the seconds in their names
    with TensorBoard(tmp_path / "resumed", seeds) as board:
        train_configuration(config, seeds, [Checkpoints(saved, every), board], resume=saved)
    for seed in seeds:
        unbroken, resumed = (read(tmp_path / name / f"seed-{seed}") for name in ("unbroken", "resumed"))
        assert unbroken.keys() == resumed.keys()
        for tag in unbroken.keys() - {"time/fps"}:
            assert resumed[tag] == unbroken[tag], tag
        assert len(unbroken["train/loss"]) >= 5


@pytest.mark.parametrize("budget", [{"total_steps": 200}, {"total_episodes": 10}])
def test_a_value_is_written_once_for_each_step(tmp_path, budget):
    """An episode's end and the values of learning may be reported at the same step."""
    with TensorBoard(tmp_path, [0]) as board:
        learner = DQN(hidden=(8,), batch_size=8, learning_starts=20)
        train("CartPole-v1", learner, Uniform(), [0], log_every=5, eval_every=None, hooks=[board], **budget)
    for values in read(tmp_path / "seed-0").values():
        steps = [step for step, _ in values]
        assert steps == sorted(set(steps))


def test_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "replaylab\[tensorboard\]"'):
        TensorBoard(tmp_path, [0])
