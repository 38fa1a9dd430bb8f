"""Each contestant of the training benchmark trains, and says how much it did; the parts of a step are timed."""

import pytest

from benchmarks import training, training_parts
from replaylab.replay import ReplayBuffer


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1"])
def test_contestants_count_their_training_steps(env_id):
    assert training.plain(env_id, [0], 80) == 17  # steps 64 to 80
    for sampler in training.OURS:
        assert training.replaylab(env_id, sampler, [0, 1, 2], 80) == 3 * 17


def test_a_ratio_is_the_median_of_the_rounds_ratios():
    rates = {"ours": [10.0, 90.0, 40.0], "plain": [1.0, 3.0, 8.0]}
    assert training.beside(rates, "ours", "plain") == 10.0


def test_each_part_of_a_step_takes_time(capsys):
    training_parts.main(["--rounds", "1", "--steps", "150"])
    header, *rows = (line.rsplit(maxsplit=2) for line in capsys.readouterr().out.splitlines())
    assert header == ["µs", "core", "PyTorch"]
    times = {name: [float(core), float(pytorch)] for name, core, pytorch in rows}
    assert times.keys() == {*training_parts.PARTS, training_parts.REST}
    assert all(min(column) > 0 for column in times.values())
    assert ReplayBuffer.add.__qualname__ == "ReplayBuffer.add"  # nothing stays timed
