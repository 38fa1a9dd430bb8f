"""Deep Q-learning in one file, in CleanRL's style: all yours but the replay buffer.

    python examples/cleanrl_dqn.py
    python examples/cleanrl_dqn.py --prioritized --total-steps 100000

Only the lines with `buffer` and `sampler` are replaylab's. The loss has importance weights under any sampler: those of
`Uniform` are 1.
"""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from replaylab.replay import Linear, Prioritized, ReplayBuffer, Uniform


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and return the returns of all episodes."""
    args = parse(arguments)
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    env = gym.make(args.env)
    env.action_space.seed(args.seed)

    q_network, target_network = network(env), network(env)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)

    sampler = Prioritized(alpha=0.6, beta=Linear(0.4, 1.0)) if args.prioritized else Uniform()
    buffer = ReplayBuffer.for_env(env, args.buffer_size, sampler=sampler, seed=args.seed)
    epsilon = Linear(1.0, 0.05, until=0.5)

    returns, latest = [], deque(maxlen=100)
    episode_return, (obs, _) = 0.0, env.reset(seed=args.seed)
    for step in range(1, args.total_steps + 1):
        progress = step / args.total_steps

        if rng.random() < epsilon(progress):
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = q_network(torch.as_tensor(obs)).argmax().item()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs, episode_return = next_obs, episode_return + float(reward)
        if terminated or truncated:
            latest.append(episode_return)
            returns.append(episode_return)
            episode_return, (obs, _) = 0.0, env.reset()

        if step >= args.learning_starts and step % args.train_frequency == 0:
            batch = buffer.sample(args.batch_size, progress=progress)
            td_error = learn(batch.torch(), q_network, target_network, optimizer, args.gamma)
            if sampler.wants_feedback:
                buffer.update_priorities(batch.id, td_error)
        if step % args.target_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
        if step % 5_000 == 0 and latest:
            print(f"step {step:,}: mean return of the last {len(latest)} episodes {np.mean(latest):.1f}", flush=True)
    env.close()
    return returns


def learn(batch, q_network, target_network, optimizer, gamma) -> np.ndarray:
    """Do one step of gradient descent and return the TD errors; an episode that was only cut off continues there."""
    with torch.no_grad():
        goes_on = 1.0 - batch.terminated.float()
        target = batch.reward + gamma * goes_on * target_network(batch.next_obs).max(dim=1).values
    q = q_network(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    loss = (batch.weight * (target - q) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return (target - q).detach().numpy()


def network(env: gym.Env) -> nn.Module:
    """Return CleanRL's network: two hidden layers of 120 and 84."""
    inputs, actions = int(np.prod(env.observation_space.shape)), int(env.action_space.n)
    return nn.Sequential(nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, actions))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the settings; the defaults but the number of steps are CleanRL's."""
    parser = argparse.ArgumentParser(description="Deep Q-learning with a replaylab buffer.")
    parser.add_argument("--env", default="CartPole-v1", help="observations in a Box, Discrete actions from 0")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--prioritized", action="store_true", help="proportional prioritized replay, not uniform")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--buffer-size", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-starts", type=int, default=10_000)
    parser.add_argument("--train-frequency", type=int, default=10)
    parser.add_argument("--target-frequency", type=int, default=500)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
