"""Learning may begin before there are as many steps as a batch has rows."""

import numpy as np
import pytest

from replaylab.errors import EmptyBufferError
from replaylab.learners import DQN, QLearning, TrainingConfig, train
from replaylab.replay import Greedy, NStep, Prioritized, SlidingWindow, Uniform
from tests.learners.calls import Drawn

DEEP = DQN(hidden=(8,), batch_size=16, learning_starts=1, capacity=100)
TABLE = QLearning(batch_size=16, learning_starts=1)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.4)], ids=["uniform", "prioritized"])
@pytest.mark.parametrize(("env", "learner"), [("CartPole-v1", DEEP), ("CliffWalking-v1", TABLE)], ids=["dqn", "table"])
def test_first_batches_repeat_the_steps_that_are_there(env, learner, sampler):
    drawn = Drawn()
    config = TrainingConfig(env, learner, sampler, 60, transforms=(NStep(3, 0.99),), eval_every=None)
    train(config, [0, 1], hooks=[drawn])
    assert len(drawn.ids) == 60
    np.testing.assert_array_equal(drawn.ids[0], np.zeros((2, 16)))  # sixteen times the only step
    for ids, stored in zip(drawn.ids, drawn.steps, strict=True):
        assert ids.shape == (2, 16)
        assert ids.min() >= 0
        assert ids.max() < stored
    late = drawn.ids[drawn.steps.index(8)]
    assert len(np.unique(late)) > 4  # all that is there, not the first or the newest alone


@pytest.mark.parametrize("sampler", [Greedy(), SlidingWindow()], ids=["greedy", "sliding_window"])
def test_a_sampler_of_different_steps_names_the_small_setting(sampler):
    config = TrainingConfig("CartPole-v1", DEEP, sampler, 60, eval_every=None)
    rule = r"at step 1 there is no batch .* only 1 .*; raise `learning_starts`, 1 of DQN$"
    with pytest.raises(EmptyBufferError, match=rule):
        train(config, [0])
