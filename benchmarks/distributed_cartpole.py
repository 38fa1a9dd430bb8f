"""CartPole by 4 actors and 2 shards, one of which is killed in the middle, beside training in one process.

    python -m benchmarks.distributed_cartpole [SEEDS] [STEPS]

Both make the same number of updates from batches of the same size. The level of a run is the mean return of its last
four greedy evaluations, a tenth of the steps apart.
"""

import os
import signal
import sys
import time

import numpy as np

from replaylab.distributed import Actors, Shards
from replaylab.distributed import train as train_by_actors
from replaylab.learners import DQN, Hook, TrainingConfig, train
from replaylab.replay import Linear, Prioritized

LEARNER = DQN(hidden=(64, 64), learning_rate=2e-3, loss="squared", target_period=20, train_period=4, max_grad_norm=10.0)


class KillsShard(Hook):
    """Kills the process of shard 0, once half of the steps are stored."""

    def __init__(self):
        self.stats = self.process = None

    def after_turn(self, run):
        """Kill it, and take note of the figures."""
        import ray

        remote = run.replay.remote
        if self.process is None and run.clock.progress >= 0.5:
            actor = remote._fleet.places[0].client.actor
            self.process = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
            os.kill(self.process, signal.SIGKILL)
        if run.clock.progress >= 0.9:
            self.stats = remote.stats()


def level(metrics, seed):
    """The mean of the last four evaluations."""
    return float(metrics.of("eval/mean_reward", seed)[1][-4:].mean())


def main(seeds=5, steps=20_000):
    """Print a line for each seed, and the levels."""
    sampler = Prioritized(beta=Linear(0.4, 1.0))
    config = TrainingConfig("CartPole-v1", LEARNER, sampler, total_steps=steps, eval_every=steps // 10)
    begun = time.perf_counter()
    alone = train(config, range(seeds))
    seconds = time.perf_counter() - begun
    levels = {"one process": [level(alone, seed) for seed in range(seeds)], "4 actors, 2 shards": []}
    updates = alone.of("train/updates")[1].max()
    print(f"one process: {seeds} seeds in {seconds:.0f} s, {updates:,.0f} updates each", flush=True)
    for seed in range(seeds):
        killing, begun = KillsShard(), time.perf_counter()
        metrics = train_by_actors(config, seed, actors=Actors(4), shards=Shards(2), hooks=[killing])
        seconds, reported = time.perf_counter() - begun, killing.stats
        levels["4 actors, 2 shards"].append(level(metrics, seed))
        print(
            f"seed {seed}: one process {levels['one process'][seed]:.0f}, "
            f"actors {levels['4 actors, 2 shards'][-1]:.0f}, "
            f"{metrics.of('train/updates')[1].max():,.0f} updates, {seconds:.0f} s; {reported.losses} shard lost with "
            f"{reported.lost_steps:,} steps, {reported.topped_up} rows topped up",
            flush=True,
        )
    for name, returns in levels.items():
        print(
            f"{name}: mean {np.mean(returns):.0f}, standard error {np.std(returns, ddof=1) / len(returns) ** 0.5:.0f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
