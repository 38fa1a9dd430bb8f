"""Ids name result files: those of a study stay what they were, so that stored results are found."""

from pathlib import Path

import pytest

from replaylab.commands.train_command import TrainCommand
from replaylab.study import catalog
from replaylab.study.plan import plan
from replaylab.study.spec.spec import Spec

RESULTS = Path(__file__).parents[2] / "docs" / "results"

FIRST_AND_LAST = {
    "quick": ("CartPole-v1.dqn.none.a6647976d531dd37", "CartPole-v1.dqn.combined.894f1832508840ae"),
    "taxi": ("Taxi-v4.q_learning.none.b2d964b049948c0d", "Taxi-v4.q_learning.none_matched_updates.8b602165e7ba9803"),
    "cliff-walking": (
        "CliffWalking-v1.q_learning.none.010c6c602ea19bff",
        "CliffWalking-v1.q_learning.both.0d37d9ddb3d65fb9",
    ),
    "classic-control": (
        "CartPole-v1.pole.none.d1225fba3d47f861",
        "replaylab-AcrobotGoal-v0.dqn.hindsight.a3d784e38f1533ae",
    ),
    "decorrelation-first": (
        "CartPole-v1.base.uniform.5e9c36a4684cd548",
        "Acrobot-v1.rare.permuted.block_length-64.beta-0.14f6da9fe098ffe8",
    ),
    "as-published-tables": (
        "Taxi-v4.q_learning.none.d019c85b2a1853f8",
        "FrozenLake-v1.ends_punished.loss-huber.uniform.f7eadb10c26b8136",
    ),
    "pong-gpu": ("ALE-Pong-v5.dqn.uniform.fc6ab81437178933", "ALE-Pong-v5.dqn.prioritized.6de105df3976a3a2"),
    "pong-full": (
        "PongNoFrameskip-v4.dqn.uniform.81ce939bc25fa4fd",
        "PongNoFrameskip-v4.dqn.prioritized.93dcf516ce47f16b",
    ),
    "blind-cliffwalk": (
        "replaylab-BlindCliffwalk-v0.q_learning.uniform.f1506e8199829f7d",
        "replaylab-BlindCliffwalk-v0.q_learning.oracle.2b5815685ca51e80",
    ),
}


@pytest.mark.parametrize("name", FIRST_AND_LAST)
def test_ids_of_studies_stay(name):
    record = RESULTS / name / "study.toml"
    chunks = plan(Spec.from_toml(record if record.is_file() else catalog.find(name)))
    assert (chunks[0].id, chunks[-1].id) == FIRST_AND_LAST[name]


def test_ids_of_the_command_line_stay():
    assert TrainCommand().chunk().id == "CartPole-v1.dqn.uniform.b53fb7accd98a841"
    assert TrainCommand(held_out=5).chunk().id == "CartPole-v1.dqn.uniform.2461dd45296846a1"
