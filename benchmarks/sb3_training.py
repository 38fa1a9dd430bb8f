"""Training by Stable-Baselines3: with its own buffer, with ours, and with priorities, as ratios in one run.

    python -m benchmarks.sb3_training

Each contestant trains for the same steps, in turns; what is compared is the median of the processor's time of one
thread.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from stable_baselines3 import DQN, SAC

from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer

OURS = {"replay_buffer_class": ReplayLabBuffer}
CONTESTANTS: dict[str, dict[str, Callable[[], Any]]] = {
    "SAC": {
        "the library's": lambda: SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu"),
        "ours, uniform": lambda: SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", **OURS),
        "ours, prioritized": lambda: PrioritizedSAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu"),
    },
    "DQN": {
        "the library's": lambda: DQN("MlpPolicy", "CartPole-v1", train_freq=1, seed=0, device="cpu"),
        "ours, uniform": lambda: DQN("MlpPolicy", "CartPole-v1", train_freq=1, seed=0, device="cpu", **OURS),
        "ours, prioritized": lambda: PrioritizedDQN("MlpPolicy", "CartPole-v1", train_freq=1, seed=0, device="cpu"),
    },
}


def seconds(make: Callable[[], Any], steps: int) -> float:
    """Return the processor's time of so many steps after the first 150, an update each."""
    model = make()
    model.learn(150)
    before = time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for algorithm, contestants in CONTESTANTS.items():
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(asked.rounds):
            for name, make in contestants.items():
                taken[name].append(seconds(make, asked.steps))
        middle = {name: median(times) for name, times in taken.items()}
        for name, time_taken in middle.items():
            of_theirs = time_taken / middle["the library's"]
            spread = (max(taken[name]) - min(taken[name])) / time_taken
            print(
                f"{algorithm:5}{name:20}{1e3 * time_taken / asked.steps:8.3f} ms a step  {of_theirs:6.3f} of theirs  "
                f"(spread {spread:.0%})",
                flush=True,
            )


if __name__ == "__main__":
    main()
