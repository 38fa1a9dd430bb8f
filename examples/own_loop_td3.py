"""TD3 on Pendulum in PyTorch: the loop that `docs/guides/your-own-training-loop.md` extends."""

import copy
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from replaylab import ReplayBuffer

GAMMA, BATCH = 0.98, 128


def network(inputs: int, *last: nn.Module) -> nn.Sequential:
    """Return a perceptron of one output."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), *last)


def train(seed: int = 0, steps: int = 6_000, start: int = 1_000, device: str = "cpu") -> list[tuple[int, float]]:
    """Train, and return the last step and the return of each episode."""
    for set_seed in (random.seed, np.random.seed, torch.manual_seed):
        set_seed(seed)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(seed)
    buffer = ReplayBuffer.for_env(
        env,
        capacity=20_000,
        seed=seed,
    )
    actor = network(3, nn.Tanh()).to(device)
    critics = nn.ModuleList([network(4), network(4)]).to(device)
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3)
    returns, total = [], 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < start:
            action = env.action_space.sample() / 2
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(obs, device=device)).cpu().numpy()
            action = np.clip(action + np.random.normal(0, 0.1, 1), -1, 1).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(2 * action)  # a torque from -2 to 2
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs, total = next_obs, total + reward
        if terminated or truncated:
            returns.append((step, float(total)))
            print(f"step {step:,}: return {total:.0f}")
            obs, total = env.reset()[0], 0.0
        if step < start:
            continue
        batch = buffer.sample(BATCH).torch(device)
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(batch.action)).clamp(-0.5, 0.5)
            next_action = (actor_target(batch.next_obs) + noise).clamp(-1, 1)
            next_pair = torch.cat((batch.next_obs, next_action), 1)
            value = torch.minimum(*(critic(next_pair)[:, 0] for critic in critics_target))
            target = batch.reward + GAMMA * ~batch.terminated * value
        pair = torch.cat((batch.obs, batch.action), 1)
        td_errors = torch.stack([target - critic(pair)[:, 0] for critic in critics])
        loss = td_errors.square().sum(0).mean()
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        if step % 2 == 0:
            actor_loss = -critics[0](torch.cat((batch.obs, actor(batch.obs)), 1)).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            for module, slow in ((actor, actor_target), (critics, critics_target)):
                for weight, slow_weight in zip(module.parameters(), slow.parameters(), strict=True):
                    slow_weight.data.lerp_(weight.data, 0.005)
    return returns


if __name__ == "__main__":
    train()
