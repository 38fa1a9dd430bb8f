"""Visits of a study's runs."""

import numpy as np
import pytest

from replaylab.commands import main as cli
from replaylab.errors import ConfigError, SpecError
from replaylab.learners import QLearning, train
from replaylab.replay import Online
from tests.study import tiny

STUDY = """
name = "cliff"
environments = ["CliffWalking-v1"]
seeds = 8
baseline = "none"
budget = { episodes = 3 }
evaluation = { every = 3, episodes = 1 }
logging = { every = 3, visits = true }
env_options."CliffWalking-v1" = { max_episode_steps = 200 }
learners.q = { type = "q_learning", gamma = 1.0 }
strategies.none = { type = "online" }
strategies.reckless = { type = "online", learner = { epsilon = 1.0 } }
"""


def test_visits_add_up_to_the_steps_and_are_those_of_single_runs():
    def run(seeds):
        options = {"total_episodes": 3, "visits": True, "env_options": {"max_episode_steps": 200}}
        return train("CliffWalking-v1", QLearning(gamma=1.0), Online(), seeds, eval_every=None, **options)

    together, names = run([0, 1, 2]), [f"visits/{state:05d}" for state in range(48)]
    for seed in range(3):
        visits = [together.of(name, seed)[1].item() for name in names]
        assert sum(visits) == together.of("rollout/ep_len", seed)[1].sum()
        assert not any(visits[37:]), "nothing is done on the cliff, nor at the goal"
        np.testing.assert_array_equal(visits, [run([seed]).of(name)[1].item() for name in names])


def test_a_study_tells_whether_a_strategy_goes_elsewhere(tmp_path, capsys):
    (tmp_path / "cliff.toml").write_text(STUDY)
    assert (
        cli.main(["study", "run", str(tmp_path / "cliff.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    )
    assert "of reckless are to other states than those of none" in capsys.readouterr().out


def test_only_discrete_observations_are_counted():
    with pytest.raises(ConfigError, match="`visits` are counted of Discrete observations"):
        train("CartPole-v1", QLearning(), Online(), [0], 10, visits=True)


def test_a_study_refuses_to_count_the_states_of_a_box_before_it_trains(tmp_path):
    study = tiny.study(tmp_path, logging__visits=True)
    with pytest.raises(
        SpecError, match=r"CartPole-v1 · dqn · uniform .* cannot be run: `visits` are counted of Discrete"
    ):
        study.run(workers=1)
    assert study.present == []
