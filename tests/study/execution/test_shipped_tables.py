"""The shipped studies of tables give the numbers of plain calls of `train`."""

import numpy as np
import pytest

from replaylab.learners import QLearning
from replaylab.replay import Exponential, Online, Uniform
from replaylab.study import catalog
from replaylab.study.execution.worker.training import train_chunk
from replaylab.study.plan import plan
from replaylab.study.spec.spec import Spec
from replaylab.study.spec.toml_model import Budget, EvaluationTable, LoggingTable
from tests.learners.calls import train

SEEDS = (0, 1)
TAXI = {"alpha": 0.5, "gamma": 0.99, "epsilon": Exponential(0.25, 1.0792e-5), "capacity": 1_000, "learning_starts": 32}
CLIFF = {"alpha": 0.9, "gamma": 1.0, "epsilon": 0.1, "capacity": 2_000, "learning_starts": 32}
EXPECTED = {
    ("taxi", "none"): (QLearning(**TAXI), Online()),
    ("taxi", "replay"): (QLearning(**TAXI, batch_size=32), Uniform()),
    ("taxi", "none_matched_updates"): (QLearning(**TAXI, batch_size=1, gradient_steps=32), Online()),
    ("cliff-walking", "none"): (QLearning(**CLIFF), Online()),
    ("cliff-walking", "replay_only"): (QLearning(**CLIFF, online=False, batch_size=32), Uniform()),
    ("cliff-walking", "both"): (QLearning(**CLIFF, batch_size=32), Uniform()),
}


@pytest.mark.parametrize("name", [pytest.param("taxi", marks=pytest.mark.slow), "cliff-walking"])
def test_a_study_of_tables_gives_what_train_gives(name):
    spec = Spec.from_toml(catalog.find(name))
    few = {"seeds": SEEDS, "budget": Budget(episodes=2), "evaluation": EvaluationTable(every=1, episodes=1)}
    chunks = plan(spec.model_copy(update={**few, "logging": LoggingTable(every=1)}))
    assert {(name, chunk.strategy) for chunk in chunks} == {key for key in EXPECTED if key[0] == name}
    for chunk in chunks:
        learner, sampler = EXPECTED[name, chunk.strategy]
        alone = train(
            "Taxi-v4" if name == "taxi" else "CliffWalking-v1",
            learner,
            sampler,
            SEEDS,
            total_episodes=2,
            env_options={} if name == "taxi" else {"max_episode_steps": 1_000},
            eval_every=1,
            eval_episodes=1,
            log_every=1,
        )
        for column, values in train_chunk(chunk).items():
            np.testing.assert_array_equal(values, alone.columns[column])
