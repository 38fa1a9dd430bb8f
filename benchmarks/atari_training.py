"""Training on Pong beside Stable-Baselines3's DQN: environment steps a second, and memory.

    pip install "replaylab[atari,bench,lab]"
    python -m benchmarks.atari_training --json atari.json

Both prepare the game alike (random no-ops, FIRE, four frames a step, 84×84 grey, stacks of four, whole games and
unclipped rewards) and learn alike: the same convolutional network, batches of 32, an update every fourth step, Huber
loss, Adam at 1e-4, the plain target (and a double one, here), gradients clipped at 10, no evaluation. They run in
processes of their own, PyTorch with one thread, and take turns; a ratio is the median of those within a turn. Seconds
are the processor's, so that neighbours on a shared machine count less.

Memory is what the process's resident memory grows by for each step while a buffer of `--fill` steps is filled with
random play, without learning, from its tenth part on: what is there anyway is not in it. Stable-Baselines3's buffer
keeps each observation once (``optimize_memory_usage=True``), a stack of four; this library's keeps frames, compressed.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

GAME = "PongNoFrameskip-v4"
NAMES = ("replaylab", "replaylab double", "stable-baselines3")
BATCH, STARTS, PERIOD = 32, 100, 4


def our_learner(capacity: int, *, double: bool = False) -> Any:
    """Return the settings that Stable-Baselines3 is given too."""
    from replaylab.learners import DQN

    return DQN(
        learning_rate=1e-4,
        batch_size=BATCH,
        capacity=capacity,
        double=double,
        learning_starts=STARTS,
        train_period=PERIOD,
        target_period=2_500,
        epsilon=0.1,
        max_grad_norm=10.0,
    )


def train_ours(steps: int, capacity: int, *, double: bool = False) -> float:
    """Return the seconds from the first update to the end."""
    from replaylab.learners import Callbacks, TrainingConfig, train
    from replaylab.replay import FrameStack, Uniform

    began: list[float] = []
    config = TrainingConfig(
        GAME,
        our_learner(capacity, double=double),
        Uniform(),
        STARTS + steps,
        transforms=[FrameStack(4, stacked_input=True)],
        eval_every=None,
        log_every=STARTS,
    )
    train(config, [0], [Callbacks(on_metrics=lambda *_: began.append(time.process_time()))])
    return time.process_time() - began[0]


def their_env() -> Any:
    """Return the game as `AtariWrapper` prepares it, four frames stacked."""
    import ale_py
    import gymnasium as gym
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gym.register_envs(ale_py)

    def make() -> Any:
        return AtariWrapper(gym.make(GAME), terminal_on_life_loss=False, clip_reward=False)

    return VecFrameStack(DummyVecEnv([make]), 4)


def train_theirs(steps: int, capacity: int) -> float:
    """Return the seconds from the first update to the end."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback

    class Began(BaseCallback):
        at = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == STARTS:
                self.at = time.process_time()
            return True

    began = Began()
    model = DQN(
        "CnnPolicy",
        their_env(),
        learning_rate=1e-4,
        buffer_size=capacity,
        learning_starts=STARTS,
        batch_size=BATCH,
        train_freq=PERIOD,
        target_update_interval=2_500 * PERIOD,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        max_grad_norm=10.0,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        seed=0,
    )
    model.learn(STARTS + steps, callback=began, log_interval=None)
    return time.process_time() - began.at


def fill_ours(capacity: int) -> float:
    """Return the bytes by which the process grows for each step that is stored."""
    from replaylab.learners import TrainingConfig
    from replaylab.learners.training.state import Run
    from replaylab.replay import FrameStack, Uniform

    stack = FrameStack(4, stacked_input=True)
    run = Run(TrainingConfig(GAME, our_learner(capacity), Uniform(), capacity, transforms=[stack]), [0])
    run.env.action_space.seed(0)
    obs = run.obs
    for number in range(capacity):
        if number == capacity // 10:
            before = resident()
        action = run.env.action_space.sample()
        next_obs, reward, terminated, truncated, infos = run.env.step(action)
        step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        ends = {"terminated": terminated, "truncated": truncated, "final_obs": infos.get("final_obs")}
        run.replay.add(**step, **ends)
        obs = next_obs
    return (resident() - before) / (capacity - capacity // 10)


def fill_theirs(capacity: int) -> float:
    """Return the bytes by which the process grows for each step that is stored."""
    from stable_baselines3 import DQN

    env = their_env()
    options = {"handle_timeout_termination": False}
    model = DQN("CnnPolicy", env, buffer_size=capacity, optimize_memory_usage=True, replay_buffer_kwargs=options)
    env.action_space.seed(0)
    obs = env.reset()
    for number in range(capacity):
        if number == capacity // 10:
            before = resident()
        action = np.array([env.action_space.sample()])
        next_obs, reward, done, infos = env.step(action)
        channels_first = (obs.transpose(0, 3, 1, 2), next_obs.transpose(0, 3, 1, 2))
        model.replay_buffer.add(*channels_first, action, reward, done, infos)
        obs = next_obs
    return (resident() - before) / (capacity - capacity // 10)


def resident() -> int:
    """Return the bytes of memory this process has (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def worker(pipe: Connection, name: str) -> None:
    """Do what comes through the pipe, ("train" or "fill", steps, capacity): → steps a second, or bytes."""
    import torch

    torch.set_num_threads(1)
    ours = name.startswith("replaylab")
    while (job := pipe.recv()) is not None:
        what, steps, capacity = job
        if what == "fill":
            pipe.send(fill_ours(capacity) if ours else fill_theirs(capacity))
        elif ours:
            pipe.send(steps / train_ours(steps, capacity, double=name.endswith("double")))
        else:
            pipe.send(steps / train_theirs(steps, capacity))


def asked(name: str, job: tuple[str, int, int]) -> float:
    """Return a new process's answer."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=worker, args=(there, name), daemon=True)
    process.start()
    here.send(job)
    answer: float = here.recv()
    here.send(None)
    process.join()
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000, help="timed in each turn (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--capacity", type=int, default=100_000, help="of the buffers (default: %(default)s)")
    parser.add_argument(
        "--fill", type=int, default=10_000, help="steps of the buffer filled for the memory; 0: not measured"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()

    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    for turn in range(options.turns):
        for name in NAMES[turn % 3 :] + NAMES[: turn % 3]:
            rates[name].append(asked(name, ("train", options.steps, options.capacity)))
        print(f"turn {turn + 1}: " + ", ".join(f"{name} {r[-1]:,.1f}/s" for name, r in rates.items()), flush=True)
    grown = {}
    if options.fill:
        grown = {name: asked(name, ("fill", 0, options.fill)) for name in NAMES[::2]}

    theirs = rates[NAMES[-1]]
    print(f"\nsteps a second, medians of {options.turns} turns of {options.steps:,} steps")
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, theirs, strict=True))
        print(f"{name:<20}{statistics.median(values):>8,.1f}{ratio:>8.2f}×")
    for name, nbytes in grown.items():
        print(f"{name:<20}{nbytes:>8,.0f} bytes for each stored step")
    if options.json:
        figures = {"steps_per_second": rates, "bytes_a_step": grown, "options": {**vars(options), "json": None}}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
