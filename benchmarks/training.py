"""Training steps per second of the CartPole cell, beside the loop people write by hand.

    python -m benchmarks.training --processes 2 --seeds 32 --json training.json

A training step is one environment step with everything that belongs to it: acting, the environment, storing,
drawing a batch of 64, one update of one hidden layer of 128, priorities, metrics. The library trains
`--seeds` seeds in each of `--processes` processes, one thread each. The plain loop is one run in one process
with the machine to itself. All run in turn, several rounds; the medians are compared. Start-up is left out on
both sides: every worker is imported and warm before the clock starts, and the clock stops when the last
worker is done.
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

SAMPLERS = ("uniform", "prioritized")


def worker(pipe: Connection) -> None:
    """Do the jobs that come through the pipe: (what, seeds, steps) → training steps done."""
    import torch

    from benchmarks import plain_dqn
    from replaylab.learners import DQN, train
    from replaylab.replay import Prioritized, Uniform

    torch.set_num_threads(1)
    learner = replace(DQN(), hidden=(128,), batch_size=64, learning_starts=64, train_period=1)
    samplers = {"uniform": Uniform(), "prioritized": Prioritized()}
    while (job := pipe.recv()) is not None:
        what, seeds, steps = job
        if what == "plain":
            pipe.send(plain_dqn.run(seeds[0], steps, learning_starts=64)["updates"])
        else:
            train("CartPole-v1", learner, samplers[what], seeds, steps, eval_every=None)
            pipe.send(len(seeds) * (steps - learner.learning_starts + 1))


def measure(pipes: list[Connection], what: str, seeds: int, steps: int) -> float:
    """Return training steps per second, all workers together."""
    start = time.perf_counter()
    for i, pipe in enumerate(pipes):
        pipe.send((what, list(range(i * seeds, (i + 1) * seeds)), steps))
    updates = sum(pipe.recv() for pipe in pipes)
    return updates / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seeds", type=int, default=32, help="seeds trained together in each process")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement, about")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(options.processes):
        here, there = context.Pipe()
        processes.append(context.Process(target=worker, args=(there,), daemon=True))
        processes[-1].start()
        pipes.append(here)

    cells = {"plain": (pipes[:1], 1), **dict.fromkeys(SAMPLERS, (pipes, options.seeds))}
    steps = {}
    for name, (some, seeds) in cells.items():  # warm up, and find how many steps fill the time
        measure(pipes, name, seeds, 300)
        rate = measure(some, name, seeds, 600)
        steps[name] = 64 + int(options.seconds * rate / (len(some) * seeds))
    rates: dict[str, list[float]] = {name: [] for name in cells}
    for number in range(options.rounds):
        for name, (some, seeds) in cells.items():
            rates[name].append(measure(some, name, seeds, steps[name]))
        print(
            f"round {number + 1}: " + ", ".join(f"{name} {r[-1]:,.0f}/s" for name, r in rates.items()),
            flush=True,
        )
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()

    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {name: medians[name] / medians["plain"] for name in SAMPLERS}
    print(f"\nmedians of {options.rounds} rounds, {options.processes} processes of {options.seeds} seeds")
    print(f"{'cell':<14}{'training steps/s':>18}{'beside plain':>14}")
    for name, median in medians.items():
        print(f"{name:<14}{median:>18,.0f}{median / medians['plain']:>13.1f}×")
    if options.json:
        figures = {
            "processes": options.processes,
            "seeds_per_process": options.seeds,
            "steps_per_second": rates,
            "medians": medians,
            "ratios": ratios,
            "machine": {
                "processor": platform.processor() or platform.machine(),
                "python": platform.python_version(),
            },
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
        print(f"written to {options.json}")


if __name__ == "__main__":
    main()
