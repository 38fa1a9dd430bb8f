"""LaBER by the TD errors of the agents that are trained."""

import numpy as np
import pytest

from replaylab.errors import ConfigError
from replaylab.learners import DQN
from replaylab.learners.api.agent_laber import AgentLaBER
from replaylab.learners.api.protocols import Agents
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.state import Run
from replaylab.replay import NStep

SETTINGS = {"learning_starts": 40, "batch_size": 8, "capacity": 200, "train_period": 4, "hidden": (8,)}
OPTIONS = {"total_episodes": 12, "eval_every": 6, "eval_episodes": 1, "log_every": 3}


@pytest.mark.parametrize("transforms", [(), (NStep(3, 0.99),)], ids=["steps", "n-step"])
def test_rows_are_kept_by_the_agents_td_errors_as_they_are_now(transforms):
    config = TrainingConfig("CartPole-v1", DQN(**SETTINGS), AgentLaBER(m=2), 500, transforms=transforms)
    run = Run(config, [3, 4])
    run.begin()
    obs = np.random.default_rng(0).normal(size=(2, 50, 4)).astype(np.float32)
    reward = np.zeros((2, 50), np.float32)
    reward[:, ::10] = 1e6  # so that nearly all of a pool's score is theirs
    ends = np.zeros((2, 50), bool)
    run.replay.extend(
        obs=obs, action=np.zeros((2, 50), np.int64), reward=reward, next_obs=obs, terminated=ends, truncated=ends
    )
    batches = [run.replay.sample(16) for _ in range(20)]
    assert np.mean([(batch.reward > 0).mean() for batch in batches]) > 0.9
    pool = run.replay.sample(8)
    np.testing.assert_array_equal(run.replay.sampler.score(pool), np.abs(run.agents.probe(pool).td_error))


class Mute(Agents):
    """Agents that nobody can look into."""


def test_agents_that_cannot_say_their_errors_are_refused():
    with pytest.raises(ConfigError, match=r"has no such method; take Prioritized"):
        AgentLaBER().of("CartPole-v1", {}, Mute())


@pytest.mark.parametrize("m", [0, 1.5, "4"])
def test_senseless_options_are_refused(m):
    with pytest.raises(ConfigError, match="`m` of AgentLaBER"):
        AgentLaBER(m=m)
