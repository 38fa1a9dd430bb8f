"""Learners that train many replicas at once, and their training loop.

The names are imported when they are first asked for, so that the tables of metrics and settings, which a report reads,
need no training code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replaylab.learners.api.hooks import EnvStep, Hook, TrainingRun
    from replaylab.learners.api.protocols import (
        Agents,
        Learner,
        Policy,
        Probe,
        ProbedAgents,
        PublishedAgents,
        Step,
        Update,
        ValueAgents,
        ValueUpdate,
    )
    from replaylab.learners.api.random_streams import Stream, generator
    from replaylab.learners.api.single_agent import SingleAgent
    from replaylab.learners.api.tape_recorder import TapeRecorder
    from replaylab.learners.api.whole_algorithm import ProbedModel, ReplayedModel, SeedRun, TrainedModel, WholeAlgorithm
    from replaylab.learners.dqn.as_published import DQNAsPublished
    from replaylab.learners.dqn.learner import DQN
    from replaylab.learners.dqn.optimizers import SGD, Adam, RMSprop
    from replaylab.learners.metrics import Metric, Metrics
    from replaylab.learners.sb3.learner import SB3
    from replaylab.learners.tabular.temporal_difference import ExpectedSarsa, QLearning, Sarsa
    from replaylab.learners.training.checkpoint import Checkpoints
    from replaylab.learners.training.configuration import TrainingConfig
    from replaylab.learners.training.hooks import Callbacks
    from replaylab.learners.training.train import train

__all__ = [
    "DQN",
    "SB3",
    "SGD",
    "Adam",
    "Agents",
    "Callbacks",
    "Checkpoints",
    "DQNAsPublished",
    "EnvStep",
    "ExpectedSarsa",
    "Hook",
    "Learner",
    "Metric",
    "Metrics",
    "Policy",
    "Probe",
    "ProbedAgents",
    "ProbedModel",
    "PublishedAgents",
    "QLearning",
    "RMSprop",
    "ReplayedModel",
    "Sarsa",
    "SeedRun",
    "SingleAgent",
    "Step",
    "Stream",
    "TapeRecorder",
    "TrainedModel",
    "TrainingConfig",
    "TrainingRun",
    "Update",
    "ValueAgents",
    "ValueUpdate",
    "WholeAlgorithm",
    "generator",
    "train",
]

_NAMES_OF = {
    "api.hooks": "EnvStep Hook TrainingRun",
    "api.protocols": "Agents Learner Policy Probe ProbedAgents PublishedAgents Step Update ValueAgents ValueUpdate",
    "api.random_streams": "Stream generator",
    "api.single_agent": "SingleAgent",
    "api.tape_recorder": "TapeRecorder",
    "api.whole_algorithm": "ProbedModel ReplayedModel SeedRun TrainedModel WholeAlgorithm",
    "dqn.as_published": "DQNAsPublished",
    "dqn.optimizers": "Adam RMSprop SGD",
    "dqn.learner": "DQN",
    "metrics": "Metric Metrics",
    "sb3.learner": "SB3",
    "tabular.temporal_difference": "ExpectedSarsa QLearning Sarsa",
    "training.checkpoint": "Checkpoints",
    "training.configuration": "TrainingConfig",
    "training.hooks": "Callbacks",
    "training.train": "train",
}
_HOME = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return __all__
