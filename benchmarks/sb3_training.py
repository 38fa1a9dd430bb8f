"""Training by Stable-Baselines3: with its own buffer, with ours, and with priorities, as ratios in one run.

    python -m benchmarks.sb3_training

The contestants of an algorithm train in turns, for the same steps; a ratio is that of the processor's times within one
round, of which the median and the extremes are printed. Memory is what the buffers' own arrays hold.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import ReplayBuffer

from replaylab.integrations.sb3 import PrioritizedDQN, PrioritizedSAC, ReplayLabBuffer

THEIRS, UNIFORM, PRIORITIZED = "the library's", "ours, uniform", "ours, prioritized"


def contestants(own: Any, prioritized: Any, env: str, **options: Any) -> dict[str, Callable[[], Any]]:
    """Return who trains, by name."""
    given = {"policy": "MlpPolicy", "env": env, "seed": 0, "device": "cpu"} | options
    return {
        THEIRS: lambda: own(**given),
        UNIFORM: lambda: own(replay_buffer_class=ReplayLabBuffer, **given),
        PRIORITIZED: lambda: prioritized(**given),
    }


ALGORITHMS = {
    "SAC": contestants(SAC, PrioritizedSAC, "Pendulum-v1"),
    "DQN": contestants(DQN, PrioritizedDQN, "CartPole-v1"),
    "DQN, an update a step": contestants(DQN, PrioritizedDQN, "CartPole-v1", train_freq=1),
}


def seconds(make: Callable[[], Any], steps: int) -> float:
    """Return the processor's time of so many steps after the first 150."""
    model = make()
    model.learn(150)
    before = time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    return time.process_time() - before


def figure(above: list[float], below: list[float]) -> str:
    """Return the median of paired ratios, and their extremes."""
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    return f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def bytes_of_a_million() -> dict[str, float]:
    """Return the gigabytes of a million steps of Atari's stacks of four frames, from a full buffer of 2,000."""
    steps, rng = 2_000, np.random.default_rng(0)
    space, action = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)
    made = {
        "the library's": ReplayBuffer(steps, space, action),
        "the library's, optimize_memory_usage": ReplayBuffer(
            steps, space, action, optimize_memory_usage=True, handle_timeout_termination=False
        ),
        "ours, frame_stack=4": ReplayLabBuffer(steps, space, action, frame_stack=4, optimize_memory_usage=True),
    }
    for buffer in made.values():
        for step in range(steps):
            if step % 250 == 0:
                stack = np.zeros((1, 4, 84, 84), np.uint8)
                stack[0, -1] = rng.integers(256, size=(84, 84))
            after = np.roll(stack, -1, axis=1)
            after[0, -1] = rng.integers(256, size=(84, 84))
            done = np.array([step % 250 == 249])
            buffer.add(stack, after, np.zeros((1, 1)), np.zeros(1), done, [{}])
            stack = after
    found = {name: 1e-3 * _nbytes(buffer) / steps for name, buffer in made.items()}
    print("GB of a million steps:", ", ".join(f"{name} {value:.1f}" for name, value in found.items()))
    return found


def _nbytes(buffer: Any) -> int:
    if isinstance(buffer, ReplayLabBuffer):
        return buffer.replay.nbytes
    return sum(one.nbytes for one in vars(buffer).values() if isinstance(one, np.ndarray))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    bytes_of_a_million()
    for algorithm, makers in ALGORITHMS.items():
        taken: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(asked.rounds):
            for name, make in makers.items():
                taken[name].append(seconds(make, asked.steps))
        print(algorithm)
        for name, times in taken.items():
            print(f"  {name:20}{1e3 * median(times) / asked.steps:8.3f} ms a step")
        print(f"  uniform, of the library's   {figure(taken[UNIFORM], taken[THEIRS])}")
        print(f"  prioritized, of uniform     {figure(taken[PRIORITIZED], taken[UNIFORM])}", flush=True)


if __name__ == "__main__":
    main()
