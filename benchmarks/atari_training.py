"""Training on Pong beside Stable-Baselines3's DQN: environment steps a second, and memory.

    pip install "replaylab[atari,bench,lab]"
    python -m benchmarks.atari_training --network data_efficient --json atari.json

Both prepare the game alike (random no-ops, FIRE, four frames a step, 84×84 grey, stacks of four, whole games and
unclipped rewards) and learn alike: the same convolutional network (`--network`), batches of 32, an update every fourth
step (`--train-period`), Huber loss, Adam at 1e-4, the plain target (and a double one, here), gradients clipped at 10,
no evaluation. They run in their own processes, PyTorch with one thread, and take turns; a ratio is the median of
those within a turn. Seconds are the processor's, so that neighbours on a shared machine count less.

Memory is what the process's resident memory grows by for each step while a buffer of `--fill` steps is filled, without
learning, from its tenth part on: what is there anyway is not in it. Stable-Baselines3's buffer keeps stacks of four,
each once (``optimize_memory_usage=True``) or twice; this library's keeps frames, compressed, of which the size depends
on what is seen: it is filled by random play, and by a player that follows the ball and so has long rallies.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.contestant import resident_bytes
from benchmarks.workers import workers

GAME = "PongNoFrameskip-v4"
NAMES = ("replaylab", "replaylab double", "stable-baselines3")
FILLS = {
    "replaylab, random play": ("replaylab", "random"),
    "replaylab, long rallies": ("replaylab", "rallies"),
    "stable-baselines3, optimize_memory_usage": ("stable-baselines3", "optimized"),
    "stable-baselines3": ("stable-baselines3", "plain"),
}
PARAMETERS = {"nature": 1_687_206, "data_efficient": 203_750}
"""Of each network, with Pong's six actions."""

BATCH, STARTS = 32, 100


@dataclass(frozen=True)
class Job:
    """Request to a process: to train for so many steps, or, with `fill`, to fill a buffer in that way."""

    network: str
    train_period: int
    steps: int
    capacity: int
    fill: str = ""


def our_learner(job: Job, *, double: bool = False) -> Any:
    """Return the settings that Stable-Baselines3 is given too."""
    from replaylab.learners import DQN

    return DQN(
        learning_rate=1e-4,
        batch_size=BATCH,
        capacity=job.capacity,
        double=double,
        learning_starts=STARTS,
        train_period=job.train_period,
        target_period=2_500,
        epsilon=0.1,
        max_grad_norm=10.0,
        pixel_network=job.network,  # type: ignore[arg-type]  # one of argparse's choices
    )


def train_ours(job: Job, *, double: bool = False) -> float:
    """Return the seconds from the first update to the end."""
    from replaylab.learners import Callbacks, TrainingConfig, train
    from replaylab.replay import FrameStack, Uniform

    began: list[float] = []
    config = TrainingConfig(
        GAME,
        our_learner(job, double=double),
        Uniform(),
        STARTS + job.steps,
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


def their_network(network: str) -> dict[str, Any]:
    """Return the policy's arguments for a network; without any it is that of 2015."""
    if network == "nature":
        return {}
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    class DataEfficient(BaseFeaturesExtractor):
        """Two convolutions of 5 × 5, stride 5, below 256 units (van Hasselt, Hessel & Aslanides 2019)."""

        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, 256)
            convolutions = (nn.Conv2d(4, 32, 5, 5), nn.ReLU(), nn.Conv2d(32, 64, 5, 5), nn.ReLU(), nn.Flatten())
            self.layers = nn.Sequential(*convolutions, nn.Linear(64 * 3 * 3, 256), nn.ReLU())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.layers(observations)
            return features

    return {"features_extractor_class": DataEfficient, "net_arch": []}


def train_theirs(job: Job) -> float:
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
        buffer_size=job.capacity,
        learning_starts=STARTS,
        batch_size=BATCH,
        train_freq=job.train_period,
        target_update_interval=2_500 * job.train_period,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        max_grad_norm=10.0,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        policy_kwargs=their_network(job.network),
        seed=0,
    )
    parameters = sum(parameter.numel() for parameter in model.q_net.parameters())
    assert parameters == PARAMETERS[job.network], f"their network has {parameters:,} parameters"
    model.learn(STARTS + job.steps, callback=began, log_interval=None)
    return time.process_time() - began.at


def fill_ours(job: Job) -> float:
    """Return the bytes by which the process grows for each step that is stored."""
    from replaylab.learners import TrainingConfig
    from replaylab.learners.training.state import Run
    from replaylab.replay import FrameStack, Uniform

    stack = FrameStack(4, stacked_input=True)
    run = Run(TrainingConfig(GAME, our_learner(job), Uniform(), job.capacity, transforms=[stack]), [0])
    run.env.action_space.seed(0)
    game = run.env.envs[0].unwrapped  # type: ignore[attr-defined]
    play = rallies(game) if job.fill == "rallies" else run.env.action_space.sample
    obs = run.obs
    for number in range(job.capacity):
        if number == job.capacity // 10:
            before = resident_bytes()
        action = np.broadcast_to(play(), 1)
        next_obs, reward, terminated, truncated, infos = run.env.step(action)
        step = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        ends = {"terminated": terminated, "truncated": truncated, "final_obs": infos.get("final_obs")}
        run.replay.add(**step, **ends)
        obs = next_obs
    return (resident_bytes() - before) / (job.capacity - job.capacity // 10)


def rallies(game: Any) -> Callable[[], int]:
    """Return a player of Pong that looks into the machine's memory and keeps its paddle at the ball's height."""
    paddle, ball, up, down = 51, 54, 2, 3

    def play() -> int:
        memory = game.ale.getRAM()
        off = int(memory[ball]) - int(memory[paddle])
        return 0 if abs(off) < 4 else down if off > 0 else up

    return play


def fill_theirs(job: Job) -> float:
    """Return the bytes by which the process grows for each step that is stored."""
    from stable_baselines3 import DQN

    env = their_env()
    options: dict[str, Any] = {"optimize_memory_usage": job.fill == "optimized"}
    options["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    model = DQN("CnnPolicy", env, buffer_size=job.capacity, **options)
    env.action_space.seed(0)
    obs = env.reset()
    for number in range(job.capacity):
        if number == job.capacity // 10:
            before = resident_bytes()
        action = np.array([env.action_space.sample()])
        next_obs, reward, done, infos = env.step(action)
        channels_first = (obs.transpose(0, 3, 1, 2), next_obs.transpose(0, 3, 1, 2))
        model.replay_buffer.add(*channels_first, action, reward, done, infos)
        obs = next_obs
    return (resident_bytes() - before) / (job.capacity - job.capacity // 10)


def worker(pipe: Connection) -> None:
    """Do the job that comes through the pipe, (name, job): → steps a second, or bytes a step."""
    import torch

    torch.set_num_threads(1)
    while (asked_for := pipe.recv()) is not None:
        name, job = asked_for
        is_lab = name.startswith("replaylab")
        if job.fill:
            pipe.send(fill_ours(job) if is_lab else fill_theirs(job))
        else:
            pipe.send(job.steps / (train_ours(job, double=name.endswith("double")) if is_lab else train_theirs(job)))


def asked(name: str, job: Job) -> float:
    """Return a new process's answer."""
    with workers(1, worker) as (pipe,):
        pipe.send((name, job))
        answer: float = pipe.recv()
    return answer


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = harness.parser(__doc__, 5, writes_json=True)
    parser.add_argument("--network", choices=PARAMETERS, default="nature", help="of both (default: %(default)s)")
    parser.add_argument("--train-period", type=int, default=4, help="steps to an update (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1_000, help="timed in each round (default: %(default)s)")
    parser.add_argument("--capacity", type=int, default=100_000, help="of the buffers (default: %(default)s)")
    parser.add_argument(
        "--fill", type=int, default=10_000, help="steps of the buffer filled for the memory; 0: not measured"
    )
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    job = Job(options.network, options.train_period, options.steps, options.capacity)
    rates = harness.take_turns({name: partial(asked, name, job) for name in NAMES}, options.rounds, "{:,.1f}/s".format)
    if options.rounds:
        reported = (
            f"medians of {options.rounds} rounds of {options.steps:,} steps, an update every {options.train_period}"
        )
        print(f"\nsteps a second with the network {options.network!r}, {reported}")
        for name, values in rates.items():
            ratios = harness.ratios(values, rates[NAMES[-1]])
            spread = f"{statistics.median(ratios):>8.2f}× ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"{name:<20}{statistics.median(values):>8,.1f}{spread}")

    grown: dict[str, float] = {}
    if options.fill:
        print(f"\nbytes for each stored step, of {options.fill:,}, and how many times the first")
        for name, (library, fill) in FILLS.items():
            grown[name] = asked(library, Job(options.network, options.train_period, 0, options.fill, fill))
            print(f"{name:<44}{grown[name]:>8,.0f}{grown[name] / next(iter(grown.values())):>8.1f}×", flush=True)
    figures = {"steps_per_second": rates, "bytes_a_step": grown, "options": {**vars(options), "json": None}}
    harness.write_json(options.json, figures)


if __name__ == "__main__":
    main()
