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
    "BitFlip-v0": ("bit_flip:BitFlipEnv", "bit_flip:BitFlipVectorEnv", None),
    "BlindCliffwalk-v0": ("blind_cliffwalk:BlindCliffwalkEnv", "blind_cliffwalk:BlindCliffwalkVectorEnv", None),
    "MountainCarGoal-v0": ("goals:MountainCarGoalEnv", "goals:MountainCarGoalVectorEnv", 200),
    "AcrobotGoal-v0": ("goals:AcrobotGoalEnv", "goals:AcrobotGoalVectorEnv", 500),
    "NoisyRewards-v0": ("noise:noisy", "noise:vector_noisy", None),
    **dict.fromkeys(MINATAR, ("pixels:MinAtarEnv", "pixels:MinAtarVectorEnv", None)),
}
"""Name → (single form, vector form, time limit), below the module and the namespace of this package."""


def register_envs() -> None:
    """Register the environments as ``replaylab/Name``; those registered stay as they are."""
    for name, (single, vector, limit) in OWN.items():
        if f"replaylab/{name}" not in gym.registry:
            gym.register(
                f"replaylab/{name}",
                entry_point=f"{MODULES}.{single}",
                vector_entry_point=f"{MODULES}.{vector}",
                max_episode_steps=limit,
                kwargs={"game": MINATAR[name]} if name in MINATAR else {},
            )
