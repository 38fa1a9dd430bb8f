"""Vector environments whose sub-environments each have a random stream of their own."""

from replaylab.envs.cartpole import CartPoleVectorEnv
from replaylab.envs.vectorize import make_vector_env

__all__ = ["CartPoleVectorEnv", "make_vector_env"]
