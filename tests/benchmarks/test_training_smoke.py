"""Each contestant of the training benchmark trains, and says how much it did."""

import pytest

from benchmarks import training


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1"])
def test_contestants_count_their_training_steps(env_id):
    assert training.plain(env_id, [0], 80) == 17  # steps 64 to 80
    for sampler in training.OURS:
        assert training.replaylab(env_id, sampler, [0, 1, 2], 80) == 3 * 17


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    rates = {"ours": [10.0, 90.0, 40.0], "plain": [1.0, 3.0, 8.0]}
    assert training.beside(rates, "ours", "plain") == 10.0
