"""Training takes any `Replay`: here one that is nothing but a Python list."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN, Checkpoints, QLearning, TrainingConfig, train
from replaylab.replay import Batch, Online, Prioritized, ReplayBuffer, Uniform
from tests.learners.calls import assert_same_rows
from tests.replay.toy_replay import SavingToyReplay, ToyReplay, assert_same_steps

LEARNER = DQN(hidden=(8,), batch_size=4, learning_starts=10, capacity=40, target_period=7)


def maker(kind, created):
    def make(*, env, capacity, seeds, sampler, transforms, count_replays):
        like = ReplayBuffer.for_env(env, capacity, replicas=len(seeds))
        created.append(
            kind(capacity, like.fields, num_envs=like.num_envs, replicas=like.replicas, autoreset=like.autoreset)
        )
        return created[-1]

    return make


def config(make, steps=90, learner=LEARNER, **options):
    return TrainingConfig(
        "CartPole-v1", learner, Uniform(), total_steps=steps, eval_every=30, eval_episodes=1, log_every=3,
        make_replay=make, **options,
    )  # fmt: skip


def keeping(created):
    """The usual buffer, kept to be looked at."""

    def make(*, env, capacity, seeds, sampler, transforms, count_replays):
        created.append(ReplayBuffer.for_env(env, capacity, replicas=len(seeds), seed=list(seeds)))
        return created[-1]

    return make


@pytest.mark.filterwarnings("ignore::replaylab.learners.training.configuration.BudgetWarning")  # it is to learn nothing
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_the_same_steps_are_stored(mode):
    """Until the first update the draws decide nothing."""
    explorer = DQN(hidden=(8,), batch_size=4, learning_starts=200, capacity=40)
    replays = []
    for make in (maker(ToyReplay, replays), keeping(replays)):
        train(config(make, steps=100, learner=explorer, autoreset_mode=mode), [3, 5])
    assert_same_steps(*replays)


class NewestToyReplay(ToyReplay):
    """One that draws the newest step alone, as `Online` does."""

    def sample(self, batch_size, *, progress=None):
        newest = [steps_of_replica[-1] for steps_of_replica in self.steps_kept]
        columns = {name: np.array([[step[name]] for _, step in newest]) for name in self.fields}
        columns["id"] = np.array([[number] for number, _ in newest])
        shape = columns["id"].shape
        return Batch(columns | {"probability": np.ones(shape), "weight": np.ones(shape, np.float32)})


TABLE = QLearning(batch_size=3, learning_starts=3, epsilon=0.3, online=False)


@pytest.mark.parametrize(("env_id", "learner"), [("CliffWalking-v1", TABLE), ("CartPole-v1", LEARNER)])
def test_the_rows_are_those_of_a_buffer_that_draws_the_same(env_id, learner):
    replays = []
    both = [
        train(TrainingConfig(env_id, learner, Online(), 150, eval_every=None, log_every=20, make_replay=make), [3, 5])
        for make in (maker(NewestToyReplay, replays), None)
    ]
    assert_same_rows(both[1], both[0])
    assert replays[0].next_id.tolist() == [150, 150]
    assert replays[0].feedback == []


def test_feedback_goes_back_to_it():
    replays = []
    settings = TrainingConfig(
        "FrozenLake-v1", TABLE, Prioritized(), 50, eval_every=None, make_replay=maker(ToyReplay, replays)
    )
    train(settings, [3])
    assert len(replays[0].feedback) == 48


def test_it_learns_from_it():
    replays = []
    table = train(config(maker(ToyReplay, replays)), [3, 5])
    assert np.isfinite(table.of("train/loss", seed=5)[1]).all()
    assert len(table.of("eval/mean_reward", seed=3)[1]) == 3
    toy = replays[0]
    assert len(toy.feedback) in (0, 81), "one for each update, if a sampler wants it"


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path):
    make = maker(SavingToyReplay, [])
    unbroken = train(config(make), [3, 5])
    saved = train(config(make), [3, 5], [Checkpoints(tmp_path, every=40)])
    resumed = train(config(make), [3, 5], resume=tmp_path)
    for table in (saved, resumed):
        assert_same_rows(table, unbroken)


def test_a_replay_without_restore_raises(tmp_path):
    with pytest.raises(ConfigError, match="needs a RestorableReplay, but ToyReplay has no `restore`"):
        train(config(maker(ToyReplay, [])), [3], [Checkpoints(tmp_path, every=40)])


def test_a_replay_without_inspection_raises():
    with pytest.raises(
        ConfigError, match="needs an InspectableReplay, but ToyReplay has no `as_batch`, `replay_counts`"
    ):
        train(config(maker(ToyReplay, []), measure_every=20), [3])


def test_a_replay_that_cannot_be_divided_raises():
    episodes = {"steps": None, "total_episodes": 3}
    with pytest.raises(ConfigError, match="needs a DivisibleReplay, but ToyReplay has no `part`"):
        train(config(maker(ToyReplay, []), **episodes), [3, 5])


REFUSED = {
    "must return a ReplayBuffer or another Replay, but got None": lambda **parts: None,
    r"must return a ReplayBuffer or another Replay, but got \[\]": lambda **parts: [],
    "must return a ReplayBuffer or another Replay, but got <class": lambda **parts: ReplayBuffer,
    "must take env, capacity, seeds, sampler, transforms, count_replays: got an unexpected": lambda env, capacity: None,
    "must return a replay with replicas=2, .* but got replicas=None and num_envs=2$": lambda env, **parts: (
        ReplayBuffer.for_env(env, 40)
    ),
    "must return a replay with replicas=2, .* but got replicas=2 and num_envs=1$": lambda env, **parts: ReplayBuffer(
        40, ReplayBuffer.for_env(env, 40).fields, replicas=2, num_envs=1
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_replay_of_so_many_replicas_is_refused(message):
    with pytest.raises(ConfigError, match=f"^`make_replay` {message}"):
        train(config(REFUSED[message]), [3, 5])
