"""DQN on CartPole with several learners: each acts, draws its own batches, and averages gradients with the others.

    python examples/data_parallel_dqn.py --learners 2 --steps 20000

All learners draw from one prioritized replay, each by a reader of its rank. `torch.distributed` averages the gradients,
so all networks stay equal: together they learn from batches of 64 rows per learner. Needs
``pip install "replaylab[lab,ray,torch]"``.
"""

import argparse
import copy
import socket

import gymnasium as gym
import numpy as np
import ray
import torch
import torch.distributed as dist
from torch import nn

from replaylab import ReplayBuffer
from replaylab.distributed.replay import RemoteReplay
from replaylab.replay import Prioritized

GAMMA, BATCH, ENVS = 0.99, 64, 8


class Learner:
    """One of W learners, a process."""

    def __init__(self, rank, world_size, address, reader, writer, seed=0):
        torch.set_num_threads(1)
        torch.manual_seed(seed)  # the same first weights everywhere
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
        self.world_size, self.reader, self.writer = world_size, reader, writer
        self.online = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.rng, self.updates, self.ended = np.random.default_rng([seed, rank]), 0, []
        self.envs = gym.make_vec("CartPole-v1", ENVS, vectorization_mode="sync")
        self.obs, _ = self.envs.reset(seed=seed + 1000 * rank)
        self.resetting, self.returns = np.zeros(ENVS, bool), np.zeros(ENVS)

    def act(self, epsilon):
        """Take one step in every environment, and store it."""
        greedy = self.online(torch.as_tensor(self.obs)).argmax(1).numpy()
        random = self.rng.random(ENVS) < epsilon
        action = np.where(random, self.rng.integers(2, size=ENVS), greedy)
        next_obs, reward, terminated, truncated, _ = self.envs.step(action)
        stored = ~self.resetting  # Gymnasium resets an environment in the step after its episode's end
        steps = {"obs": self.obs, "action": action, "reward": reward, "next_obs": next_obs}
        self.writer.add(where=stored, **steps, terminated=terminated, truncated=truncated)
        self.returns += reward * stored
        self.resetting = terminated | truncated
        self.ended += self.returns[self.resetting].tolist()
        self.returns[self.resetting] = 0.0
        self.obs = next_obs

    def update(self):
        """Learn from this learner's batch and, by their gradients, from those of the others."""
        batch = self.reader.sample(BATCH)
        obs, next_obs = torch.as_tensor(batch.obs), torch.as_tensor(batch.next_obs)
        bootstrap = self.target(next_obs).detach().max(1).values * ~torch.as_tensor(batch.terminated)
        chosen = self.online(obs).gather(1, torch.as_tensor(batch.action)[:, None])[:, 0]
        error = torch.as_tensor(batch.reward) + GAMMA * bootstrap - chosen
        loss = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
        self.optimizer.zero_grad()
        (torch.as_tensor(batch.weight) * loss).mean().backward()
        gradients = [parameter.grad for parameter in self.online.parameters()]
        mean = nn.utils.parameters_to_vector(gradients) / self.world_size
        dist.all_reduce(mean)
        nn.utils.vector_to_parameters(mean, gradients)
        self.optimizer.step()
        self.reader.update_priorities(batch.id, error.detach().numpy())
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.online.state_dict())

    def run(self, steps, starts=50):
        """Act and learn for so many time steps; return the network's parameters and the returns of episodes."""
        for step in range(steps):
            self.act(epsilon=max(0.05, 1.0 - 3.0 * step / steps))
            if step == starts:
                self.writer.flush()
            for _ in range(2 * (step >= starts)):
                self.update()
        return nn.utils.parameters_to_vector(self.online.parameters()).detach().numpy(), self.ended


def start(learners, cls=Learner):
    """Return the replay and W learners, Ray actors."""
    fields = ReplayBuffer.for_env(gym.make("CartPole-v1"), 1).fields
    replay = RemoteReplay(50_000, fields, num_envs=learners * ENVS, sampler=Prioritized(beta=0.4), shards=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # on several machines: the address of the machine of rank 0
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    actors = []
    for rank in range(learners):
        reader, writer = replay.reader(rank, learners), replay.writer(range(rank * ENVS, (rank + 1) * ENVS))
        actors.append(ray.remote(num_cpus=0)(cls).remote(rank, learners, address, reader, writer))
    return replay, actors


def main(arguments=None):
    """Train, and return each learner's parameters and returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps of all learners")
    args = parser.parse_args(arguments)
    replay, learners = start(args.learners)
    with replay:
        results = ray.get([learner.run.remote(args.steps // (ENVS * args.learners)) for learner in learners])
    for rank, (_, returns) in enumerate(results):
        print(f"learner {rank}: mean return of the last ten of {len(returns)} episodes {np.mean(returns[-10:]):.0f}")
    return results


if __name__ == "__main__":
    main()
