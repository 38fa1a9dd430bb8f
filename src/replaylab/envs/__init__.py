"""Environments, single and vector; the copies of a vector environment each have their own random stream.

Importing this registers the library's own with Gymnasium, as ``replaylab/BitFlip-v0`` and so on.
"""

from replaylab.envs.acrobot import AcrobotVectorEnv
from replaylab.envs.atari import AtariVectorEnv, make_atari
from replaylab.envs.batched import BatchedEnv
from replaylab.envs.blind_cliffwalk import BlindCliffwalkEnv, BlindCliffwalkVectorEnv
from replaylab.envs.cartpole import CartPoleVectorEnv
from replaylab.envs.goals import (
    AcrobotGoalEnv,
    AcrobotGoalVectorEnv,
    BitFlipEnv,
    BitFlipVectorEnv,
    MountainCarGoalEnv,
    MountainCarGoalVectorEnv,
    goal_functions,
)
from replaylab.envs.grid_world import GridWorldEnv, GridWorldVectorEnv
from replaylab.envs.minatar import MinAtarEnv, MinAtarVectorEnv
from replaylab.envs.mountain_car import MountainCarVectorEnv
from replaylab.envs.registration import register_envs
from replaylab.envs.transition_table import TableVectorEnv, TransitionTable
from replaylab.envs.vectorize import make_vector_env
from replaylab.envs.wrappers.discretize import Binning, Discretize, DiscretizeVector
from replaylab.envs.wrappers.noise import NoisyRewards, VectorNoisyRewards
from replaylab.envs.wrappers.visit_counts import VisitCounts

__all__ = [
    "AcrobotGoalEnv",
    "AcrobotGoalVectorEnv",
    "AcrobotVectorEnv",
    "BatchedEnv",
    "BitFlipEnv",
    "BitFlipVectorEnv",
    "BlindCliffwalkEnv",
    "BlindCliffwalkVectorEnv",
    "AtariVectorEnv",
    "Binning",
    "CartPoleVectorEnv",
    "Discretize",
    "DiscretizeVector",
    "GridWorldEnv",
    "GridWorldVectorEnv",
    "MinAtarEnv",
    "MinAtarVectorEnv",
    "MountainCarGoalEnv",
    "MountainCarGoalVectorEnv",
    "MountainCarVectorEnv",
    "NoisyRewards",
    "TableVectorEnv",
    "TransitionTable",
    "VectorNoisyRewards",
    "VisitCounts",
    "goal_functions",
    "make_atari",
    "make_vector_env",
    "register_envs",
]

register_envs()
