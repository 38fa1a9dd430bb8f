"""Training on MinAtar beside a plain PyTorch loop of its package's example: frames a second, an update at each.

    pip install "replaylab[lab]" torch minatar
    python -m benchmarks.minatar_training --json minatar.json

All learn by the recipe of `benchmarks/plain_minatar_dqn.py` (here with Adam in place of RMSprop), everything included:
acting, the game, storing, drawing, updating, the target network, metrics; no evaluation. `--seeds` seeds (10) train
together here, in one process and cut over one process a core; the plain loop is one run with the machine to itself.
Every process has one thread. They take turns; a ratio is the median of those within a turn, of frames a second on the
clock (what the machine does) and of processor time (what a core does, whatever the neighbours do). Importing and the
frames before the first update are not timed, and ε is .1 from the start, as it is for most of a whole run.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from benchmarks import harness
from benchmarks.plain_minatar_dqn import BATCH, CAPACITY, EPSILON, GAMMA, LEARNING_RATE, TARGET_PERIOD
from benchmarks.workers import workers
from replaylab.envs.registration import MINATAR

STARTS = 100
PLAIN = "plain loop"
GAMES = {game: f"replaylab/{name}" for name, game in MINATAR.items()}


@dataclass(frozen=True)
class Rate:
    """Frames a second of all runs together, on the clock and of processor time."""

    clock: float
    processor: float


def train_ours(game: str, seeds: Sequence[int], frames: int, on_start: Callable[[], object]) -> None:
    """Train all seeds together by the recipe."""
    from replaylab.learners import DQN, Callbacks, TrainingConfig, train
    from replaylab.replay import Uniform

    learner = DQN(
        hidden=(128,),
        filters=16,
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        batch_size=BATCH,
        capacity=CAPACITY,
        double=False,
        target_period=TARGET_PERIOD,
        learning_starts=STARTS,
        epsilon=EPSILON[1],
        max_grad_norm=None,
    )
    all_actions = {"minimal_actions": False}
    config = TrainingConfig(
        GAMES[game], learner, Uniform(), frames, env_options=all_actions, eval_every=None, log_every=STARTS
    )
    logged = iter([on_start])
    train(config, seeds, [Callbacks(on_metrics=lambda *_: next(logged, lambda: None)())])


def worker(pipe: Connection) -> None:
    """Do the jobs that come through the pipe, (contestant, game, seeds, frames): → seconds (clock, processor)."""
    import torch

    from benchmarks import plain_minatar_dqn

    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        name, game, seeds, frames = job
        began: list[tuple[float, float]] = []

        def on_start() -> None:
            began.append((time.perf_counter(), time.process_time()))  # noqa: B023

        if name == PLAIN:
            plain_minatar_dqn.run(
                seeds[0],
                STARTS + frames,
                game=game,
                learning_starts=STARTS,
                epsilon_frames=1,
                on_start=on_start,
            )
        else:
            train_ours(game, seeds, STARTS + frames, on_start)
        pipe.send((time.perf_counter() - began[0][0], time.process_time() - began[0][1]))


def measure(pipes: Sequence[Connection], name: str, game: str, seeds: int, frames: int) -> Rate:
    """Return what one turn of a contestant gives, its seeds cut over the processes of these pipes."""
    shares = [range(seeds)[place :: len(pipes)] for place in range(len(pipes))]
    for pipe, share in zip(pipes, shares, strict=True):
        pipe.send((name, game, list(share), frames))
    spent = [pipe.recv() for pipe in pipes]
    runs = [len(share) * frames for share in shares]
    clock = sum(runs) / max(seconds for seconds, _ in spent)
    return Rate(clock, sum(runs) / sum(seconds for _, seconds in spent))


def compare(pipes: Sequence[Connection], options: argparse.Namespace) -> dict[str, list[Rate]]:
    """Return each contestant's rates, turn by turn."""
    cells = {PLAIN: (pipes[:1], 1), "replaylab, one process": (pipes[:1], options.seeds)}
    if len(pipes) > 1:
        cells[f"replaylab, {len(pipes)} processes"] = (pipes, options.seeds)
    frames = {}
    for name, (some, seeds) in cells.items():  # warm up, and find how many frames fill the time
        rate = measure(some, name, options.game, seeds, 200)
        frames[name] = max(int(options.seconds * rate.clock / seeds), 200)
    contestants = {
        name: partial(measure, some, name, options.game, seeds, frames[name]) for name, (some, seeds) in cells.items()
    }
    return harness.take_turns(contestants, options.rounds, lambda rate: f"{rate.clock:,.0f}/s")


def tell(rates: dict[str, list[Rate]]) -> None:
    """Print the table."""
    print(f"\n{'frames a second':<26}{'on the clock':>14}{'over plain':>12}{'of processor':>14}{'over plain':>12}")
    for name, turns in rates.items():
        line = f"{name:<26}"
        for kind in ("clock", "processor"):
            values, plain = ([getattr(rate, kind) for rate in some] for some in (turns, rates[PLAIN]))
            line += f"{statistics.median(values):>14,.0f}{statistics.median(harness.ratios(values, plain)):>11.2f}×"
        print(line)


def main() -> None:
    """Measure and print."""
    parser = harness.parser(__doc__, 5, writes_json=True)
    parser.add_argument("--game", default="breakout", choices=list(GAMES))
    parser.add_argument("--seeds", type=int, default=10, help="R, trained here (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a turn, about (default: %(default)s)")
    options = parser.parse_args()

    print(f"R = {options.seeds}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with workers(options.processes, worker) as pipes:
        rates = compare(pipes, options)
    tell(rates)
    figures = {name: [vars(rate) for rate in turns] for name, turns in rates.items()}
    harness.write_json(options.json, {"options": {**vars(options), "json": None}, "frames_per_second": figures})


if __name__ == "__main__":
    main()
