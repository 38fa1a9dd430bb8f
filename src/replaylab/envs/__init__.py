"""Vector environments whose copies each have a random stream of their own."""

from replaylab.envs.acrobot import AcrobotVectorEnv
from replaylab.envs.batched import BatchedEnv
from replaylab.envs.cartpole import CartPoleVectorEnv
from replaylab.envs.mountain_car import MountainCarVectorEnv
from replaylab.envs.tables import TableVectorEnv
from replaylab.envs.transition_table import TransitionTable
from replaylab.envs.vectorize import make_vector_env

__all__ = [
    "AcrobotVectorEnv",
    "BatchedEnv",
    "CartPoleVectorEnv",
    "MountainCarVectorEnv",
    "TableVectorEnv",
    "TransitionTable",
    "make_vector_env",
]
