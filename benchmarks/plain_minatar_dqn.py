"""Deep Q-learning on MinAtar as its package's example does it, as a plain PyTorch loop.

One game, one network (3 × 3, 16 filters, 128 units), an update of 32 at every frame, 100,000 steps of uniform replay, a
copy to the target network every 1,000 updates, centred RMSprop at 2.5e-4, Huber's loss, all six actions (Young & Tian
2019, and `examples/dqn.py` of the package). It is what `benchmarks/minatar_training.py` holds the library against.
Nothing here is slow on purpose: the replay is preallocated bool NumPy where the example keeps a list of tensors, acting
and targets run without gradients, and the target network sees each batch once.
"""

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.plain_dqn import Replay

BATCH, CAPACITY, TARGET_PERIOD = 32, 100_000, 1_000
GAMMA, LEARNING_RATE = 0.99, 2.5e-4
EPSILON = (1.0, 0.1)
SIDE = 10


def network(channels: int, num_actions: int) -> nn.Module:
    """Return the network of MinAtar's paper."""
    convolution = (nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolution, nn.Linear(16 * (SIDE - 2) ** 2, 128), nn.ReLU(), nn.Linear(128, num_actions))


def run(
    seed: int,
    frames: int,
    *,
    game: str,
    learning_starts: int = 5_000,
    epsilon_frames: int = 100_000,
    on_start: Callable[[], object] = lambda: None,
) -> list[float]:
    """Train; return the returns of all episodes. `on_start` is called just before the first update."""
    minatar: Any = importlib.import_module("minatar")
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = minatar.Environment(game)
    env.seed(seed)
    channels, num_actions = env.state_shape()[2], env.num_actions()
    online = network(channels, num_actions)
    target = copy.deepcopy(online)
    optimizer = torch.optim.RMSprop(online.parameters(), lr=LEARNING_RATE, alpha=0.95, centered=True, eps=0.01)
    replay = Replay(CAPACITY, (channels, SIDE, SIDE), seed, np.bool_)
    returns, episode, updates = [], 0.0, 0
    env.reset()
    obs = env.state().transpose(2, 0, 1)
    for frame in range(1, frames + 1):
        epsilon = max(EPSILON[1], EPSILON[0] - (EPSILON[0] - EPSILON[1]) * frame / epsilon_frames)
        if rng.random() < epsilon:
            action = int(rng.integers(num_actions))
        else:
            with torch.no_grad():
                action = int(online(torch.from_numpy(obs[None].astype(np.float32))).argmax())
        reward, terminated = env.act(action)
        next_obs = env.state().transpose(2, 0, 1)
        replay.add(obs, action, reward, next_obs, terminated)
        episode += float(reward)
        obs = next_obs
        if terminated:
            returns.append(episode)
            episode = 0.0
            env.reset()
            obs = env.state().transpose(2, 0, 1)
        if frame < learning_starts:
            continue
        if frame == learning_starts:
            on_start()
        b_obs, b_action, b_reward, b_next_obs, b_terminated = replay.sample(BATCH)
        with torch.no_grad():
            y = b_reward + GAMMA * (1.0 - b_terminated) * target(b_next_obs.float()).max(1).values
        q = online(b_obs.float()).gather(1, b_action[:, None]).squeeze(1)
        loss = functional.smooth_l1_loss(q, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        if updates % TARGET_PERIOD == 0:
            target.load_state_dict(online.state_dict())
    return returns
