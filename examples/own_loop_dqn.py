"""DQN on CartPole in PyTorch: the loop that `docs/guides/your-own-training-loop.md` extends."""

import copy
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from replaylab import ReplayBuffer

GAMMA, BATCH = 0.99, 64


def train(seed: int = 0, steps: int = 20_000, start: int = 1_000, device: str = "cpu") -> list[tuple[int, float]]:
    """Train, and return the last step and the return of each episode."""
    for set_seed in (random.seed, np.random.seed, torch.manual_seed):
        set_seed(seed)
    env = gym.make("CartPole-v1")
    env.action_space.seed(seed)
    buffer = ReplayBuffer.for_env(
        env,
        capacity=20_000,
        seed=seed,
    )
    q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    q_target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    returns, total = [], 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if random.random() < max(0.05, 1 - step / (0.3 * steps)):
            action = env.action_space.sample()
        else:
            action = int(q(torch.as_tensor(obs, device=device)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs, total = next_obs, total + reward
        if terminated or truncated:
            returns.append((step, total))
            print(f"step {step:,}: return {total:.0f}")
            obs, total = env.reset()[0], 0.0
        if step < start:
            continue
        batch = buffer.sample(BATCH).torch(device)
        with torch.no_grad():
            value = q_target(batch.next_obs).max(1).values
            target = batch.reward + GAMMA * ~batch.terminated * value
        td_error = target - q(batch.obs).gather(1, batch.action[:, None])[:, 0]
        loss = td_error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            q_target.load_state_dict(q.state_dict())
    return returns


if __name__ == "__main__":
    train()
