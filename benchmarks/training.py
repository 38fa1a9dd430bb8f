"""Training steps per second, beside the loop people write by hand and Stable-Baselines3's DQN.

    python -m benchmarks.training --processes 2 --seeds 32 --json training.json

A training step is one environment step with everything that belongs to it: acting, the environment, storing,
drawing a batch of 64, one update of one hidden layer of 128, priorities, metrics. The library trains
`--seeds` seeds in each of `--processes` processes, one thread each. The plain loop and Stable-Baselines3 are
one run in one process with the machine to itself. All run in turn, several rounds; told are the medians of the
rounds' ratios, since the runs of a round share whatever else the machine does. Start-up is left out on all
sides: every worker is imported and warm before the clock starts, and the clock stops when the last is done.
"""

import argparse
import importlib.util
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from benchmarks import harness
from benchmarks.workers import workers

ENVS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
OURS = ("uniform", "prioritized")
STARTS = 64
"""Steps before the first update, on all sides."""


def plain(env_id: str, seeds: Sequence[int], steps: int) -> int:
    """Train by the loop in `plain_dqn`; return the training steps done."""
    from benchmarks import plain_dqn

    return int(plain_dqn.run(seeds[0], steps, learning_starts=STARTS, env_id=env_id)["updates"])


def stable_baselines3(env_id: str, seeds: Sequence[int], steps: int) -> int:
    """Train Stable-Baselines3's DQN with the same settings; return the training steps done."""
    from stable_baselines3 import DQN

    model = DQN(
        "MlpPolicy",
        env_id,
        learning_rate=1e-3,
        buffer_size=50_000,
        learning_starts=STARTS,
        batch_size=64,
        gamma=0.99,
        train_freq=1,
        target_update_interval=200,
        max_grad_norm=1.0,
        policy_kwargs={"net_arch": [128]},
        seed=seeds[0],
        device="cpu",
    )
    model.learn(steps)
    return steps - STARTS


def replaylab(env_id: str, sampler: str, seeds: Sequence[int], steps: int) -> int:
    """Train one learner a seed, all together; return the training steps done."""
    from replaylab.learners import DQN, TrainingConfig, train
    from replaylab.replay import Prioritized, Uniform

    learner = replace(DQN(), hidden=(128,), batch_size=64, learning_starts=STARTS, train_period=1)
    draws = {"uniform": Uniform(), "prioritized": Prioritized()}[sampler]
    train(TrainingConfig(env_id, learner, draws, steps, eval_every=None), seeds)
    return len(seeds) * (steps - STARTS + 1)


def worker(pipe: Connection) -> None:
    """Do the jobs that come through the pipe: (environment, what, seeds, steps) → training steps done."""
    import torch

    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        env_id, what, seeds, steps = job
        if what in OURS:
            pipe.send(replaylab(env_id, what, seeds, steps))
        else:
            pipe.send({"plain": plain, "sb3": stable_baselines3}[what](env_id, seeds, steps))


def measure(pipes: list[Connection], env_id: str, what: str, seeds: int, steps: int) -> float:
    """Return training steps per second, all workers together."""
    start = time.perf_counter()
    for i, pipe in enumerate(pipes):
        pipe.send((env_id, what, list(range(i * seeds, (i + 1) * seeds)), steps))
    done = sum(pipe.recv() for pipe in pipes)
    return done / (time.perf_counter() - start)


def compare(env_id: str, pipes: list[Connection], options: argparse.Namespace) -> dict[str, list[float]]:
    """Return each contestant's training steps per second, round by round."""
    alone = ["plain"] + ["sb3"] * (importlib.util.find_spec("stable_baselines3") is not None)
    cells = dict.fromkeys(alone, (pipes[:1], 1)) | dict.fromkeys(OURS, (pipes, options.seeds))
    steps = {}
    for name, (some, seeds) in cells.items():  # warm up, and find how many steps fill the time
        measure(some, env_id, name, seeds, 300)
        rate = measure(some, env_id, name, seeds, 600)
        steps[name] = STARTS + int(options.seconds * rate / (len(some) * seeds))
    print(env_id)
    contestants = {
        name: partial(measure, some, env_id, name, seeds, steps[name]) for name, (some, seeds) in cells.items()
    }
    return harness.take_turns(contestants, options.rounds, "{:,.0f}/s".format)


def beside(rates: dict[str, list[float]], name: str, other: str) -> float:
    """Return the median over the rounds of one's rate over the other's."""
    return statistics.median(harness.ratios(rates[name], rates[other]))


def tell(rates: dict[str, dict[str, list[float]]]) -> None:
    """Print the table."""
    print(f"\n{'environment':<16}{'contestant':<14}{'training steps/s':>18}{'over plain':>12}{'over SB3':>10}")
    for env_id, by_contestant in rates.items():
        for name, values in by_contestant.items():
            others = [
                f"{beside(by_contestant, name, other):.1f}×" if other in by_contestant else "–"
                for other in ("plain", "sb3")
            ]
            print(f"{env_id:<16}{name:<14}{statistics.median(values):>18,.0f}{others[0]:>12}{others[1]:>10}")


def main() -> None:
    parser = harness.parser(__doc__, 5, writes_json=True)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seeds", type=int, default=32, help="seeds trained together in each process")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement, about")
    parser.add_argument("--envs", nargs="+", default=ENVS)
    options = parser.parse_args()

    with workers(options.processes, worker) as pipes:
        rates = {env_id: compare(env_id, pipes, options) for env_id in options.envs}
    tell(rates)
    figures = {
        "processes": options.processes,
        "seeds_per_process": options.seeds,
        "steps_per_second": rates,
        "over_plain": {
            e: {name: beside(by_contestant, name, "plain") for name in OURS} for e, by_contestant in rates.items()
        },
    }
    harness.write_json(options.json, figures)


if __name__ == "__main__":
    main()
