"""Taxi: does replay speed up learning, or do more updates?

    python examples/taxi.py                              # the curves are in results/taxi
    python examples/taxi.py --episodes 1000 --seeds 30

Q-learning (α .5, γ .99, ε .25 × .99 an episode, episodes of at most 200 steps) learns online from every new step,
and besides from 32 replayed ones, of the last 1,000; or from nothing more; or 32 times again from the same new step,
which matches the number of updates without any memory.
"""

import argparse
from pathlib import Path

import numpy as np

from replaylab.envs import make_vector_env
from replaylab.learners import QLearning, Step
from replaylab.replay import Online, ReplayBuffer, Sampler, Uniform
from replaylab.watch import learning_curves, running_mean, save

STRATEGIES: dict[str, tuple[QLearning, Sampler]] = {
    "none": (QLearning(), Uniform()),
    "none, 33 updates a step": (QLearning(batch_size=1, gradient_steps=32), Online()),
    "32 replayed": (QLearning(batch_size=32, capacity=1_000), Uniform()),
}


def train(learner: QLearning, sampler: Sampler, seeds: list[int], episodes: int) -> np.ndarray:
    """Return the return of each episode of each seed (R, N)."""
    R = len(seeds)
    env = make_vector_env("Taxi-v4", R, max_episode_steps=200)
    agents = learner.agents(env.single_observation_space, env.single_action_space, seeds)
    buffer = ReplayBuffer.for_env(env, learner.capacity, replicas=R, sampler=sampler, seed=seeds)
    returns, episode, total = np.full((R, episodes), np.nan), np.zeros(R, np.int64), np.zeros(R)
    step, (obs, _) = 0, env.reset(seed=seeds)
    while (episode < episodes).any():  # seeds that have finished continue, unrecorded, until the last one has
        step += 1
        agents.epsilon = 0.25 * 0.99**episode
        action = agents.act(obs[:, None], explore=True)[:, 0]
        next_obs, reward, terminated, truncated, infos = env.step(action)
        ended = terminated | truncated
        end = np.where(ended, infos["final_obs"], next_obs).astype(np.int64) if ended.any() else next_obs
        agents.observe(Step(obs, action, reward, end, terminated, truncated, action, np.ones(R, bool)))
        if learner.batch_size:
            buffer.add(
                obs=obs,
                action=action,
                reward=reward,
                next_obs=next_obs,
                terminated=terminated,
                truncated=truncated,
                final_obs=infos.get("final_obs"),
            )
            if step >= learner.learning_starts:
                for _ in range(learner.gradient_steps):
                    agents.update(buffer.sample(learner.batch_size))
        total += reward
        recorded = np.flatnonzero(ended & (episode < episodes))
        returns[recorded, episode[recorded]] = total[recorded]
        total[ended] = 0.0
        episode += ended
        obs = next_obs
    return returns


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    """Train all three and draw their curves; return the returns of each, (R, N)."""
    parser = argparse.ArgumentParser(description="Taxi with and without replay.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("results/taxi"))
    args = parser.parse_args(arguments)

    returns = {}
    for name, (learner, sampler) in STRATEGIES.items():
        returns[name] = train(learner, sampler, list(range(args.seeds)), args.episodes)
        early, late = returns[name].mean(1), running_mean(returns[name], 10)[:, -1]
        print(
            f"{name}: mean return of all episodes {early.mean():.1f} ± {early.std():.1f} over seeds, "
            f"of the last 10 {late.mean():.1f} ± {late.std():.1f}",
            flush=True,
        )
    save(learning_curves(returns, span=100), args.out / "curves.svg", args.out / "curves.png")
    print(f"curves: {args.out / 'curves.svg'}")
    return returns


if __name__ == "__main__":
    main()
