"""Learners that train many replicas at once, and the loop that trains them."""

from replaylab.learners.api.protocols import (
    Agents,
    Learner,
    Policy,
    ProbedAgents,
    Step,
    Update,
    ValueAgents,
    ValueUpdate,
)
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.learners.dqn.as_published import DQNAsPublished
from replaylab.learners.dqn.settings import DQN
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.learners.tabular.temporal_difference import ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.training.loop import train

__all__ = [
    "DQN",
    "DQNAsPublished",
    "Agents",
    "ExpectedSarsa",
    "Learner",
    "Metrics",
    "Policy",
    "ProbedAgents",
    "QLearning",
    "Sarsa",
    "Step",
    "Stream",
    "Update",
    "ValueAgents",
    "ValueUpdate",
    "generator",
    "train",
]
