"""TD3 in FastTD3's form, on pendulums that are simulated in PyTorch: steps, replay and learning on one device.

    python examples/td3_pendulum.py --device cuda --prioritized

Only the lines with `buffer` are replaylab's: the class has the arguments and keys of FastTD3's own.
"""

import argparse
import copy
import math

import torch
from tensordict import TensorDict
from torch import nn

from replaylab.replay import Prioritized, Uniform
from replaylab.torch.fasttd3 import SimpleReplayBuffer

GAMMA, LIMIT = 0.98, 200


class Pendulums:
    """Gymnasium's Pendulum-v1, many at once; each is reset in the step in which its episode ends."""

    def __init__(self, count: int, device: str) -> None:
        self.count, self.device = count, device
        self.angle, self.speed = self._start()
        self.age = torch.randint(LIMIT, (count,), device=device)  # so that not all end together

    def _start(self) -> tuple[torch.Tensor, torch.Tensor]:
        angle, speed = 2 * torch.rand(2, self.count, device=self.device) - 1
        return math.pi * angle, speed

    def observe(self) -> torch.Tensor:
        """Return the observations."""
        return torch.stack((self.angle.cos(), self.angle.sin(), self.speed / 8), 1)

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the true next observations, rewards, which episodes ended, and the observations to go on from."""
        torque = 2 * action[:, 0]
        angle = (self.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = (self.speed + (15 * self.angle.sin() + 3 * torque) * 0.05).clamp(-8, 8)
        self.angle = self.angle + self.speed * 0.05
        self.age += 1
        true_next, ended, start = self.observe(), self.age >= LIMIT, self._start()
        self.angle, self.speed = torch.where(ended, start[0], self.angle), torch.where(ended, start[1], self.speed)
        self.age = torch.where(ended, 0, self.age)
        return true_next, reward, ended, self.observe()


def network(inputs: int, *last: nn.Module) -> nn.Sequential:
    """Return a perceptron of one output."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1), *last)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and return the mean reward of a step in each tenth of the run."""
    args = parse(arguments)
    torch.manual_seed(args.seed)
    device, pendulums = args.device, Pendulums(args.envs, args.device)
    actor, critics = network(3, nn.Tanh()), nn.ModuleList([network(4), network(4)])
    networks = nn.ModuleList([actor, critics]).to(device)
    targets = copy.deepcopy(networks)
    actor_target, critics_target = targets
    actor_optimizer, critic_optimizer = (torch.optim.Adam(module.parameters(), lr=1e-3) for module in networks)
    sampler = Prioritized(alpha=0.6, beta=0.4) if args.prioritized else Uniform()
    options = {"n_steps": 3, "gamma": GAMMA, "device": device, "sampler": sampler, "seed": args.seed}
    buffer = SimpleReplayBuffer(args.envs, args.buffer_size, 3, 1, **options)
    obs, rewards, curve = pendulums.observe(), torch.zeros((), device=device), []
    for step in range(1, args.steps + 1):
        with torch.no_grad():
            action = (actor(obs) + 0.2 * torch.randn(args.envs, 1, device=device)).clamp(-1, 1)
        true_next, reward, ended, going_on = pendulums.step(action)
        after = {"observations": true_next, "rewards": reward, "dones": ended.long(), "truncations": ended.long()}
        buffer.extend(TensorDict({"observations": obs, "actions": action, "next": after}, batch_size=args.envs))
        obs, rewards = going_on, rewards + reward.mean()
        if step % max(1, args.steps // 10) == 0:
            curve.append(float(rewards) / max(1, args.steps // 10))
            print(f"step {step:,}: mean reward {curve[-1]:.3f}")
            rewards = torch.zeros((), device=device)
        if step < args.learning_starts:
            continue
        data = buffer.sample(args.batch_size // args.envs)
        with torch.no_grad():
            last = data["next"]
            noise = (0.2 * torch.randn_like(data["actions"])).clamp(-0.5, 0.5)
            next_pair = torch.cat((last["observations"], (actor_target(last["observations"]) + noise).clamp(-1, 1)), 1)
            value = torch.minimum(*(critic(next_pair)[:, 0] for critic in critics_target))
            bootstrap = (last["truncations"] > 0) | (last["dones"] == 0)
            target = last["rewards"] / 10 + GAMMA ** last["effective_n_steps"] * bootstrap * value
        pair = torch.cat((data["observations"], data["actions"]), 1)
        errors = torch.stack([target - critic(pair)[:, 0] for critic in critics])
        critic_optimizer.zero_grad()
        (data["weight"] * errors.square().sum(0)).mean().backward()
        critic_optimizer.step()
        buffer.update_priorities(data["id"], errors[0])
        if step % 2 == 0:
            actor_optimizer.zero_grad()
            (-critics[0](torch.cat((data["observations"], actor(data["observations"])), 1)).mean()).backward()
            actor_optimizer.step()
            for now, slow in zip(networks.parameters(), targets.parameters(), strict=True):
                slow.data.lerp_(now.data, 0.01)
    return curve


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"envs": 32, "steps": 2_000, "learning-starts": 50, "batch-size": 256, "buffer-size": 5_000, "seed": 0}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prioritized", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
