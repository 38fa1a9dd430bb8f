"""DQN on CartPole with several learners: each acts, draws its own batches, and averages gradients with the others.

    python examples/data_parallel_dqn.py --learners 2 --steps 20000 --folder runs/parallel

All learners draw from one prioritized replay, each by a reader of its rank. `torch.distributed` averages the gradients,
so all networks stay equal: together they learn from batches of 64 rows per learner. If a learner dies, all begin again
at the last checkpoint. If everything dies, the same command does. Needs ``pip install "replaylab[lab,ray,torch]"``.
"""

import argparse
import copy
from pathlib import Path

import gymnasium as gym
import numpy as np
import ray
import torch
import torch.distributed as dist
from torch import nn

from replaylab import ReplayBuffer
from replaylab.distributed.replay import RemoteOptions, RemoteReplay, Snapshots
from replaylab.replay import Prioritized

GAMMA, BATCH, ENVS, PERIOD, STARTS, MOST_FAILURES = 0.99, 64, 8, 200, 50, 10


class Learner:
    """One of W learners, a process."""

    def __init__(self, rank, world_size, folder, reader, writer):
        torch.set_num_threads(1)
        torch.manual_seed(0)  # the same first weights everywhere
        dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
        self.rank, self.world_size, self.reader, self.writer = rank, world_size, reader, writer
        self.online = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3, fused=True)
        self.file, self.parts = folder / "learner.pt", (self.online, self.target, self.optimizer)
        self.rng, self.updates, self.step, self.batch = np.random.default_rng(rank), 0, 0, None
        self.envs = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("CartPole-v1", ENVS))
        self.obs, _ = self.envs.reset(seed=1000 * rank)
        if self.file.exists():
            self.updates, self.step, *states = torch.load(self.file)
            for part, state in zip(self.parts, states, strict=True):
                part.load_state_dict(state)

    def act(self, epsilon):
        """Take one step in every environment, and store it."""
        greedy = self.online(torch.as_tensor(self.obs)).argmax(1).numpy()
        action = np.where(self.rng.random(ENVS) < epsilon, self.rng.integers(2, size=ENVS), greedy)
        next_obs, reward, terminated, truncated, _ = self.envs.step(action)
        steps = {"obs": self.obs, "action": action, "reward": reward, "next_obs": next_obs}
        self.writer.add(**steps, terminated=terminated, truncated=truncated)
        self.obs = next_obs

    def update(self):
        """Learn from this learner's batch and, by their gradients, from those of the others."""
        batch = self.batch or self.reader.sample(BATCH)
        best = self.target(torch.as_tensor(batch.next_obs)).detach().max(1).values
        wanted = torch.as_tensor(batch.reward) + GAMMA * ~torch.as_tensor(batch.terminated) * best
        value = self.online(torch.as_tensor(batch.obs)).gather(1, torch.as_tensor(batch.action)[:, None])[:, 0]
        self.optimizer.zero_grad()
        (torch.as_tensor(batch.weight) * nn.functional.huber_loss(value, wanted, reduction="none")).mean().backward()
        gradients = [parameter.grad for parameter in self.online.parameters()]
        mean = nn.utils.parameters_to_vector(gradients) / self.world_size
        averaging = dist.all_reduce(mean, async_op=True)
        self.reader.update_priorities(batch.id, (wanted - value).detach())  # while gradients travel
        self.batch = self.reader.sample(BATCH)
        averaging.wait()
        nn.utils.vector_to_parameters(mean, gradients)
        self.optimizer.step()
        self.updates += 1
        if self.updates % PERIOD == 0:
            self.target.load_state_dict(self.online.state_dict())

    def run(self, steps):
        """Act and learn up to a time step; return the network's parameters and the returns of the last episodes."""
        while self.step < steps:
            self.act(epsilon=max(0.05, 1.0 - 3.0 * self.step / steps))
            self.step += 1
            if self.step == STARTS:
                self.writer.flush()
            for _ in range(2 * (self.step >= STARTS)):
                self.update()
            if self.rank == 0 and (self.step % PERIOD == 0 or self.step == steps):
                saved = self.updates, self.step, *(part.state_dict() for part in self.parts)
                torch.save(saved, self.file.with_suffix(".new"))
                self.file.with_suffix(".new").rename(self.file)
        return nn.utils.parameters_to_vector(self.online.parameters()).detach().numpy(), list(self.envs.return_queue)


def start(replay, folder, count, cls=Learner):
    """Return W learners, Ray actors."""
    (folder / "rendezvous").unlink(missing_ok=True)
    parts = [
        (replay.reader(rank, count), replay.writer(range(rank * ENVS, (rank + 1) * ENVS))) for rank in range(count)
    ]
    return [ray.remote(num_cpus=0)(cls).remote(rank, count, folder, *part) for rank, part in enumerate(parts)]


def open_replay(folder, learners):
    """Return the replay of a run: that of its snapshots in the folder, or an empty one."""
    options = RemoteOptions(snapshot=Snapshots(folder / "replay", period=5.0))
    if (folder / "replay" / "replay.json").exists():
        return RemoteReplay.load(folder / "replay", options=options)
    (folder / "learner.pt").unlink(missing_ok=True)
    fields = ReplayBuffer.for_env(gym.make("CartPole-v1"), 1).fields
    shared = {"num_envs": learners * ENVS, "autoreset": "next_step", "sampler": Prioritized(beta=0.4)}
    return RemoteReplay(50_000, fields, **shared, shards=1, options=options)


def main(arguments=None):
    """Train, and return each learner's parameters and returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps of all learners")
    parser.add_argument("--folder", type=Path, default="runs/parallel", help="of checkpoints; all machines see it")
    args = parser.parse_args(arguments)
    folder, steps = args.folder.resolve(), args.steps // (ENVS * args.learners)
    with open_replay(folder, args.learners) as replay:
        for failures in range(1, MOST_FAILURES + 1):
            learners = start(replay, folder, args.learners)
            try:
                results = ray.get([learner.run.remote(steps) for learner in learners])
                replay.save(folder / "replay")
                return results
            except ray.exceptions.RayError as error:  # the others cannot average without it
                print(f"failure {failures} of at most {MOST_FAILURES}: {str(error).splitlines()[-1]}")
                for learner in learners:
                    ray.kill(learner)
    raise SystemExit("learners failed too often")


if __name__ == "__main__":
    for rank, (_, returns) in enumerate(main()):
        print(f"learner {rank}: mean return of the last ten of {len(returns)} episodes {np.mean(returns[-10:]):.0f}")
