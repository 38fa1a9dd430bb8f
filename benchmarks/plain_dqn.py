"""The loop people write by hand: one environment, one network, one update a step.

It is what `benchmarks/training.py` holds the library against. Nothing here is slow on purpose: the replay is
preallocated NumPy, acting and targets run without gradients, and PyTorch uses one thread.
"""

import copy
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Replay:
    """A ring of transitions in NumPy arrays, drawn from uniformly."""

    def __init__(self, capacity: int, obs_shape: tuple[int, ...], seed: int, dtype: type = np.float32) -> None:
        self.obs = np.zeros((capacity, *obs_shape), dtype)
        self.next_obs = np.zeros((capacity, *obs_shape), dtype)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.count = capacity, 0
        self.rng = np.random.default_rng(seed)

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        place = self.count % self.capacity
        self.obs[place] = obs
        self.action[place] = action
        self.reward[place] = reward
        self.next_obs[place] = next_obs
        self.terminated[place] = terminated
        self.count += 1

    def sample(self, batch_size: int) -> list[torch.Tensor]:
        rows = self.rng.integers(min(self.count, self.capacity), size=batch_size)
        columns = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return [torch.from_numpy(column[rows]) for column in columns]


def run(seed: int, total_steps: int, *, learning_starts: int, env_id: str = "CartPole-v1") -> dict[str, float]:
    """Train; return updates, the seconds they took, and the mean return of the last ten episodes."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make(env_id)
    inputs, num_actions = env.observation_space.shape[0], int(env.action_space.n)
    online = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, num_actions))
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=1e-3)
    replay = Replay(50_000, (inputs,), seed)
    returns, losses, episode = [], [], 0.0
    started = 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(1, total_steps + 1):
        epsilon = max(0.05, 1.0 - 0.95 * step / (0.1 * total_steps))
        if rng.random() < epsilon:
            action = int(rng.integers(num_actions))
        else:
            with torch.no_grad():
                action = int(online(torch.from_numpy(obs)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, reward, next_obs, terminated)
        episode += float(reward)
        obs = next_obs
        if terminated or truncated:
            returns.append(episode)
            episode = 0.0
            obs, _ = env.reset()
        if step < learning_starts:
            continue
        started = started or time.perf_counter()
        b_obs, b_action, b_reward, b_next_obs, b_terminated = replay.sample(64)
        with torch.no_grad():
            best = online(b_next_obs).argmax(1, keepdim=True)
            bootstrap = target(b_next_obs).gather(1, best).squeeze(1)
            y = b_reward + 0.99 * (1.0 - b_terminated) * bootstrap
        q = online(b_obs).gather(1, b_action[:, None]).squeeze(1)
        loss = functional.smooth_l1_loss(q, y)
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 1.0)
        adam.step()
        if step % 1_000 == 0:
            losses.append(loss.item())
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
    updates = total_steps - learning_starts + 1
    return {
        "updates": updates,
        "seconds": time.perf_counter() - started,
        "return": float(np.mean(returns[-10:])) if returns else float("nan"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = run(0, 50_000, learning_starts=1_000)
    print(
        f"{result['updates'] / result['seconds']:,.0f} training steps/s, "
        f"mean of the last ten returns {result['return']:.0f}"
    )
