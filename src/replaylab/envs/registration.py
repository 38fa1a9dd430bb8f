"""The library's own environments, by name, in Gymnasium's registry."""

import gymnasium as gym

MODULES = "replaylab.envs"
MINATAR = {
    "MinAtar-Asterix-v1": "asterix",
    "MinAtar-Breakout-v1": "breakout",
    "MinAtar-Freeway-v1": "freeway",
    "MinAtar-Seaquest-v1": "seaquest",
    "MinAtar-SpaceInvaders-v1": "space_invaders",
}
"""Name → what the forms call the game. Version 1, as the package calls the one with the minimal actions."""

OWN = {
    "BitFlip-v0": ("goals", "BitFlipEnv", "BitFlipVectorEnv", None),
    "BlindCliffwalk-v0": ("blind_cliffwalk", "BlindCliffwalkEnv", "BlindCliffwalkVectorEnv", None),
    "GridWorld-v0": ("grid_world", "GridWorldEnv", "GridWorldVectorEnv", 5_000),
    "MountainCarGoal-v0": ("goals", "MountainCarGoalEnv", "MountainCarGoalVectorEnv", 200),
    "AcrobotGoal-v0": ("goals", "AcrobotGoalEnv", "AcrobotGoalVectorEnv", 500),
    "NoisyRewards-v0": ("wrappers.noise", "noisy", "vector_noisy", None),
    **dict.fromkeys(MINATAR, ("minatar", "MinAtarEnv", "MinAtarVectorEnv", None)),
}
"""Name → (module, single form, vector form, time limit), below the package and the namespace of this package."""


def register_envs() -> None:
    """Register the environments as ``replaylab/Name``; those already registered are unchanged."""
    for name, (module, single, vector, limit) in OWN.items():
        if f"replaylab/{name}" not in gym.registry:
            gym.register(
                f"replaylab/{name}",
                entry_point=f"{MODULES}.{module}:{single}",
                vector_entry_point=f"{MODULES}.{module}:{vector}",
                max_episode_steps=limit,
                kwargs={"game": MINATAR[name]} if name in MINATAR else {},
            )
