"""Every public call of the learners, with one senseless argument at a time."""

import gymnasium as gym
import numpy as np
import pytest

from replaylab import learners
from replaylab.errors import StorageError
from replaylab.learners import (
    DQN,
    SB3,
    SGD,
    Adam,
    Callbacks,
    Checkpoints,
    DQNAsPublished,
    ExpectedSarsa,
    QLearning,
    RMSprop,
    Sarsa,
    SingleAgent,
    Stream,
    TapeRecorder,
    TrainingConfig,
    generator,
    train,
)
from replaylab.learners.training.env_hindsight import EnvHindsight
from replaylab.replay import Uniform
from tests.senseless import NUMBERS, TRUTH, Call, wrongs

DEEP = {
    "hidden": "[]",
    "filters": "0",
    "gamma": "0",
    "double": TRUTH,
    "dueling": TRUTH,
    "target_range": "None",
    "learning_rate": "3.5 huge",
    "epsilon": "0",
    "max_grad_norm": "None 3.5 huge",
    "device": "text nul",
    "module": "None",
}
PUBLISHED = DEEP | dict.fromkeys(
    (
        "truncation_terminates",
        "insertion_priorities",
        "stale_priorities",
        "target_each_episode",
        "explores_first_action",
    ),
    TRUTH,
)
TABLE = {
    "gamma": "0",
    "epsilon": "0",
    "online": "True",
    "batch_size": "0",
    "initial_value": NUMBERS,
    "initial_std": "0 3.5 huge",
}
CONFIGURATIONS = [
    Call(DQN, {}, DEEP),
    Call(DQNAsPublished, {}, PUBLISHED | {"end_reward": f"None {NUMBERS}"}),
    Call(QLearning, {}, TABLE),
    Call(SB3, {"algorithm": "DQN"}, {"arguments": "{}", "code": "text nul"}),
    Call(Sarsa, {}, TABLE),
    Call(ExpectedSarsa, {}, TABLE),
    Call(Adam, {}, {"beta1": "0", "beta2": "0", "epsilon": "3.5 huge"}),
    Call(RMSprop, {}, {"decay": "0", "epsilon": "3.5 huge", "centered": TRUTH}),
    Call(SGD, {}, {"momentum": "0"}),
    Call(generator, {"seed": 1, "stream": Stream.EXPLORATION}, {"seed": "0 huge"}),
    Call(EnvHindsight, {}, {"ratio": "0 3.5 huge"}),
]


SETTINGS = {
    "total_episodes": "None",
    "transforms": "[]",
    "env_options": "None {}",
    "eval_every": "None",
    "held_out": "0",
    "value_error": TRUTH,
    "visits": TRUTH,
    "measure_every": "None 0",
    "trace_every": "None 0",
    "make_replay": "None",
    "autoreset_mode": "None",
}
LEARNER = QLearning(capacity=8, learning_starts=1)
GIVEN = {"env_id": "FrozenLake-v1", "learner": LEARNER, "sampler": Uniform(), "total_steps": 3}
SHORT = TrainingConfig(**GIVEN, eval_episodes=1, eval_every=3)


def trained(**options):
    return {"configuration": SHORT, "seeds": [1]} | options


FUNCTIONS = dict.fromkeys(("on_metrics", "on_end", "progress"), "None")
CALLS = [
    Call(TrainingConfig, GIVEN, SETTINGS | {"env_id": "text nul"}),
    Call(Callbacks, {}, FUNCTIONS),
    Call(Checkpoints, {"folder": "kept"}, {"folder": "text", "every": "None"}),
    Call(SingleAgent, lambda: {"learner": LEARNER, "env": gym.make("FrozenLake-v1")}, {"seed": "0"}),
    Call(TapeRecorder, {}, {"path": "None text"}),
    Call(train, trained(), {"hooks": "[]", "resume": "None"}),
]


class TestConfigurations:
    @pytest.mark.parametrize("call", CONFIGURATIONS, ids=lambda call: call.name)
    def test_senseless_options(self, call):
        assert wrongs(call) == []

    def test_numpys_numbers_become_pythons(self):
        typed = {"hidden": np.array([4, 5]), "gamma": np.float64(0.5), "batch_size": np.int64(8), "double": np.True_}
        plain = {"hidden": (4, 5), "gamma": 0.5, "batch_size": 8, "double": True}
        assert repr(DQN(**typed)) == repr(DQN(**plain))
        assert repr(QLearning(epsilon=np.float32(0.5))) == repr(QLearning(epsilon=0.5))


class TestCalls:
    @pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
    def test_senseless_arguments(self, call, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert wrongs(call) == []

    def test_a_file_in_the_place_of_a_folder(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(StorageError, match=r"`folder` must be a folder, but .*file is a file"):
            train(**trained(hooks=[Checkpoints(tmp_path / "file")]))
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_class_is_no_learner(self):
        with pytest.raises(ValueError, match=r"`learner` of TrainingConfig must be a learner such as DQN\(\), but"):
            TrainingConfig("FrozenLake-v1", DQN, Uniform(), 3)


PROTOCOLS = {"Agents", "Hook", "Learner", "Policy", "ProbedAgents", "PublishedAgents", "TrainingRun", "ValueAgents"} | {
    *("ProbedModel", "ReplayedModel", "SeedRun", "TrainedModel", "WholeAlgorithm")
}
MADE = PROTOCOLS | {
    "EnvStep",
    "Metric",
    "Metrics",
    "Probe",
    "Step",
    "Stream",
    "Update",
    "ValueUpdate",
}
"""Protocols, what the library makes, and what is called with that alone."""


def test_nothing_is_left_out():
    assert {call.name for call in CONFIGURATIONS + CALLS} - {"EnvHindsight"} | MADE == set(learners.__all__)
