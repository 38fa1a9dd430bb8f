"""Learners that train many replicas at once, and the loop that trains them."""

from replaylab.learners.agents import Agents, Learner, Step, Update
from replaylab.learners.dqn import DQN
from replaylab.learners.metrics import Metrics
from replaylab.learners.network import MultiLayerPerceptron
from replaylab.learners.population import Population
from replaylab.learners.streams import Stream
from replaylab.learners.training import train

__all__ = [
    "DQN",
    "Agents",
    "Learner",
    "Metrics",
    "MultiLayerPerceptron",
    "Population",
    "Step",
    "Stream",
    "Update",
    "train",
]
