"""Learners that train many replicas at once, and the loop that trains them."""

from replaylab.learners.dqn import DQN
from replaylab.learners.metrics import Metrics
from replaylab.learners.network import MultiLayerPerceptron
from replaylab.learners.population import Population, Update
from replaylab.learners.streams import Stream
from replaylab.learners.training import train

__all__ = ["DQN", "Metrics", "MultiLayerPerceptron", "Population", "Stream", "Update", "train"]
