"""Ids name result files: those of the studies that ship stay what they were, so that stored results are found."""

import pytest

from replaylab.commands.train import described_population
from replaylab.study import catalog
from replaylab.study.plan.populations import plan
from replaylab.study.spec.study_file import Spec

FIRST_AND_LAST = {
    "quick": ("CartPole-v1.dqn.none.b54553b5dfee2a7b", "CartPole-v1.dqn.combined.c0cf594febac23ae"),
    "taxi": ("Taxi-v4.q_learning.none.b1bcd5ada369d490", "Taxi-v4.q_learning.none_matched_updates.af8962bf1a0fa469"),
    "cliff-walking": (
        "CliffWalking-v1.q_learning.none.2b1593fa5b61e5d8",
        "CliffWalking-v1.q_learning.both.f15b278bc7602e22",
    ),
    "classic-control": (
        "CartPole-v1.pole.none.7ae26e21633e2e4b",
        "replaylab-AcrobotGoal-v0.dqn.hindsight.ce06387b9a9d786a",
    ),
    "decorrelation-first": (
        "CartPole-v1.base.uniform.239bb5b0edbdc1d7",
        "Acrobot-v1.rare.permuted.block_length-64.beta-0.9b5746d8a515357a",
    ),
    "as-published-tables": (
        "Taxi-v4.q_learning.none.bcb11229410e8ed8",
        "FrozenLake-v1.ends_punished.loss-huber.uniform.f621d4eb25de366e",
    ),
    "pong-full": (
        "PongNoFrameskip-v4.dqn.uniform.f4626dd52781b03a",
        "PongNoFrameskip-v4.dqn.prioritized.6cfab9a0d16b8ef2",
    ),
    "blind-cliffwalk": (
        "replaylab-BlindCliffwalk-v0.q_learning.uniform.f705160d948e0307",
        "replaylab-BlindCliffwalk-v0.q_learning.oracle.9d66582dd1af3fed",
    ),
}


@pytest.mark.parametrize("name", FIRST_AND_LAST)
def test_ids_of_shipped_studies_stay(name):
    populations = plan(Spec.from_toml(catalog.find(name)))
    assert (populations[0].id, populations[-1].id) == FIRST_AND_LAST[name]


def test_ids_of_the_command_line_stay():
    given = {
        "environment": "CartPole-v1",
        "strategy": "uniform",
        "strategy_options": [],
        "learner": "dqn",
        "learner_options": [],
        "seeds": range(10),
        "steps": 50_000,
        "eval_every": 2_500,
        "eval_episodes": 10,
    }
    assert described_population(**given).id == "CartPole-v1.dqn.uniform.49e6b4ea9dc349a6"
    assert described_population(**given, held_out=5).id == "CartPole-v1.dqn.uniform.7ce8268761a981d4"
