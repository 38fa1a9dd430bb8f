"""Learners that train many replicas at once, and the loop that trains them."""

from replaylab.learners.agents import Agents, Learner, Step, Update
from replaylab.learners.as_published import DQNAsPublished
from replaylab.learners.dqn import DQN
from replaylab.learners.metrics import Metrics
from replaylab.learners.streams import Stream
from replaylab.learners.tabular import ExpectedSarsa, QLearning, Sarsa
from replaylab.learners.training import train

__all__ = [
    "DQN",
    "DQNAsPublished",
    "Agents",
    "ExpectedSarsa",
    "Learner",
    "Metrics",
    "QLearning",
    "Sarsa",
    "Step",
    "Stream",
    "Update",
    "train",
]
