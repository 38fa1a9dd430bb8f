"""Deep Q-learning with Flax and Optax in one file: prioritized weights and TD errors in one compiled update.

    pip install flax gymnasium optax "replaylab[jax]"
    python examples/flax_dqn.py
    python examples/flax_dqn.py --uniform --total-steps 100000

Batches are drawn, and put on JAX's device, by a thread of the buffer's while the environment is stepped.
"""

import argparse
from collections import deque

import numpy as np

from replaylab.replay import Linear, Prioritized, ReplayBuffer, Uniform

try:
    import flax.linen as nn
    import gymnasium as gym
    import jax
    import jax.numpy as jnp
    import optax
except ModuleNotFoundError as error:
    raise SystemExit(f'{error.name} is missing. Run: pip install flax gymnasium optax "replaylab[jax]"') from error


class QNetwork(nn.Module):
    """Q(s, ·) by two hidden layers."""

    actions: int

    @nn.compact
    def __call__(self, obs):
        """Return the values of all actions, (..., A)."""
        for width in (120, 84):
            obs = nn.relu(nn.Dense(width)(obs))
        return nn.Dense(self.actions)(obs)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and return the returns of all episodes."""
    args = parse(arguments)
    rng = np.random.default_rng(args.seed)
    env = gym.make("CartPole-v1")
    network = QNetwork(int(env.action_space.n))
    optimizer = optax.adam(args.learning_rate)
    obs, _ = env.reset(seed=args.seed)
    params = target = network.init(jax.random.key(args.seed), obs)
    optimizer_state = optimizer.init(params)
    learn, act = compiled(network, optimizer, args.gamma)

    sampler = Uniform() if args.uniform else Prioritized(alpha=0.6, beta=Linear(0.4, 1.0))
    buffer = ReplayBuffer.for_env(env, args.buffer_size, sampler=sampler, seed=args.seed)
    updates = max(1, (args.total_steps - args.learning_starts) // args.train_frequency + 1)
    batches = buffer.batches(args.batch_size, prefetch=1, total=updates, device="jax", progress=lambda k: k / updates)
    epsilon = Linear(1.0, 0.05, until=0.5)

    returns, latest, episode_return = [], deque(maxlen=100), 0.0
    for step in range(1, args.total_steps + 1):
        explores = rng.random() < epsilon(step / args.total_steps)
        action = int(rng.integers(env.action_space.n)) if explores else int(act(params, obs))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)
        obs, episode_return = next_obs, episode_return + float(reward)
        if terminated or truncated:
            latest.append(episode_return)
            returns.append(episode_return)
            episode_return, (obs, _) = 0.0, env.reset()

        if step >= args.learning_starts and (step - args.learning_starts) % args.train_frequency == 0:
            batch = next(batches)
            params, optimizer_state, td_error = learn(params, target, optimizer_state, batch)
            buffer.update_priorities(batch.id, td_error)
        if step % args.target_frequency == 0:
            target = params
        if step % 5_000 == 0 and latest:
            print(f"step {step:,}: mean return of the last {len(latest)} episodes {np.mean(latest):.1f}", flush=True)
    batches.close()
    env.close()
    return returns


def compiled(network, optimizer, gamma):
    """Return the update and the greedy action as compiled functions."""

    def weighted_loss(params, target, batch):
        """Mean of weight × δ², and δ; an episode that was only cut off continues there."""
        goes_on = 1.0 - batch.terminated
        wanted = batch.reward + gamma * goes_on * network.apply(target, batch.next_obs).max(axis=1)
        q = jnp.take_along_axis(network.apply(params, batch.obs), batch.action[:, None], axis=1)[:, 0]
        return (batch.weight * (wanted - q) ** 2).mean(), wanted - q

    @jax.jit
    def learn(params, target, optimizer_state, batch):
        gradients, td_error = jax.grad(weighted_loss, has_aux=True)(params, target, batch)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        return optax.apply_updates(params, updates), optimizer_state, td_error

    return learn, jax.jit(lambda params, obs: network.apply(params, obs).argmax())


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the settings."""
    parser = argparse.ArgumentParser(description="Deep Q-learning in JAX with a replaylab buffer.")
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--uniform", action="store_true", help="uniform replay, not prioritized")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--buffer-size", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-starts", type=int, default=500)
    parser.add_argument("--train-frequency", type=int, default=2)
    parser.add_argument("--target-frequency", type=int, default=200)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
