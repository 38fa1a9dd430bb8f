"""Environments whose observations are small pictures: the five MinAtar games, computed by the compiled core."""

from replaylab.envs.pixels.minatar import MinAtarEnv, MinAtarVectorEnv

__all__ = ["MinAtarEnv", "MinAtarVectorEnv"]
