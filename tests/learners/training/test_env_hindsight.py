"""Goal environments, Dict and Discrete observations through the training loop."""

import numpy as np
import pytest

from replaylab.learners import DQN
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import Prioritized, Uniform
from tests.learners.calls import assert_same_rows, train

QUICK = DQN(hidden=(8,), batch_size=8, learning_starts=20, capacity=300)
LEARNER = DQN(
    hidden=(64,),
    gamma=0.98,
    target_range=(-50.0, 0.0),
    learning_starts=200,
    capacity=20_000,
    target_period=100,
    epsilon=0.2,
)


@pytest.mark.parametrize(
    ("env_id", "transforms", "episode"),
    [
        ("replaylab/BitFlip-v0", (), 1),
        ("replaylab/BitFlip-v0", (EnvHindsight("final"),), 1),
        ("replaylab/MountainCarGoal-v0", (EnvHindsight(),), 200),
        ("FrozenLake-v1", (), 1),
    ],
)
def test_every_kind_of_observation_is_learned_from(env_id, transforms, episode):
    """Episodes end, every update happens, values move away from where they began, and the same again."""
    options = {"transforms": transforms, "eval_every": 250, "eval_episodes": 1, "log_every": 25}
    first, again = (train(env_id, QUICK, Prioritized(), [3, 5], 250, **options) for _ in range(2))
    assert_same_rows(again, first)
    assert first.of("rollout/ep_len")[1].min() >= episode
    assert np.isfinite(first.of("eval/mean_reward")[1]).all()
    assert first.of("train/updates", 3)[1][-1] == 250 - 20 + 1
    assert len(set(first.of("train/q_mean", 3)[1])) == 10
    assert np.isfinite(first.columns["value"]).all()


def test_bit_flip_is_solved_with_hindsight_and_not_without():
    """With 8 bits the best way costs 3 on average, (number of wrong bits, 4 on average) − 1; not to arrive costs 8."""
    plain, hindsight = (
        train(
            "replaylab/BitFlip-v0",
            LEARNER,
            Uniform(),
            [0, 1],
            2_500,
            transforms=transforms,
            env_options={"n": 8},
            eval_every=2_500,
            eval_episodes=50,
        ).of("eval/mean_reward")[1]
        for transforms in ((), (EnvHindsight(),))
    )
    assert (plain < -7.0).all()
    assert (hindsight > -4.0).all()
