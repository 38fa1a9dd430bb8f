"""Ape-X on a MinAtar game: many actors with different ε, which compute the initial priorities of their steps.

    python examples/ape_x.py --game Breakout --actors 4 --steps 200000

Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay". Needs ``pip install "replaylab[lab,ray]"``.
"""

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np

from replaylab.distributed import Actors, Shards, train
from replaylab.learners import DQN, Callbacks, TrainingConfig
from replaylab.replay import NStep, Prioritized


@dataclass(frozen=True)
class ApeX(DQN):
    """A DQN whose actors compute initial TD errors; otherwise a new step gets the largest priority of its shard."""

    steps: int = 3

    def agents(self, observation_space, action_space, seeds):
        """Return new agents, with the method that actors look for."""
        agents = super().agents(observation_space, action_space, seeds)
        agents.initial_td_errors = partial(initial_td_errors, agents, self.gamma, self.steps)
        return agents


def initial_td_errors(agents, gamma, steps, columns):
    """Return n-step TD errors of new steps, (T, E), by the actor's own network.

    The last steps of the T have shorter returns, as the steps that follow them are not known yet. The first update from
    a step replaces its priority.

    Args:
        agents: The actor's copy of the agents.
        gamma: γ.
        steps: n.
        columns: T time steps in E environments, (T, E, ...).
    """
    shape = columns["reward"].shape
    q, next_q = (
        agents.q_values(columns[name].reshape(1, -1, *columns[name].shape[2:])).reshape(*shape, -1)
        for name in ("obs", "next_obs")
    )
    ended = columns["terminated"] | columns["truncated"]
    single = columns["reward"] + gamma * ~columns["terminated"] * next_q.max(-1)
    target = single.copy()
    for _ in range(steps - 1):
        target[:-1] = np.where(ended[:-1], single[:-1], columns["reward"][:-1] + gamma * target[1:])
    action = agents.index_of(columns["action"])[..., None]
    return target - np.take_along_axis(q, action, axis=-1)[..., 0]


def main(arguments=None):
    """Train, print each evaluation, and return the metrics."""
    args = parse(arguments)
    learner = ApeX(
        filters=16,
        hidden=(128,),
        learning_rate=2.5e-4,
        gamma=0.99,
        batch_size=32,
        capacity=100_000,
        target_period=250,
        learning_starts=args.learning_starts,
        train_period=4,
    )
    config = TrainingConfig(
        f"replaylab/MinAtar-{args.game}-v1",
        learner,
        Prioritized(alpha=0.6, beta=0.4),
        total_steps=args.steps,
        transforms=[NStep(learner.steps, learner.gamma)],
        eval_every=max(1, args.steps // 10),
    )

    def show(step, metrics):
        if "eval/mean_reward" in metrics:
            print(f"step {step:,}: mean return {metrics['eval/mean_reward'][0]:.1f}", flush=True)

    actors = Actors(args.actors, envs=args.envs)  # ε from 0.4 down to 0.4^8 over all environments
    return train(config, args.seed, actors=actors, shards=Shards(args.shards), hooks=[Callbacks(on_metrics=show)])


def parse(arguments):
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    games = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
    parser.add_argument("--game", default="Breakout", choices=games)
    counts = {"actors": 4, "envs": 8, "shards": 1, "steps": 200_000, "learning-starts": 1_000, "seed": 0}
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
