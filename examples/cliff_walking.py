"""CliffWalking with and without replay: where the agents go, what they expect, what they do.

    python examples/cliff_walking.py                    # figures and a video in results/cliff_walking
    python examples/cliff_walking.py --seeds 100

Q-learning with step size .9, γ = 1, ε = .1, 100 episodes: online from every new step; or from replayed steps
alone, with as many updates (a batch of 32 every 32 steps), or with 32 times as many (a batch every step).
"""

import argparse
from pathlib import Path

import numpy as np

from replaylab.envs import VisitCounts, make_vector_env
from replaylab.learners import QLearning, Step
from replaylab.replay import ReplayBuffer
from replaylab.statistics import share_distance_test
from replaylab.watch import Grid, play, save, value_map, visit_map, write_frames, write_video

SETTINGS = {"alpha": 0.9, "gamma": 1.0, "epsilon": 0.1}
REPLAY = SETTINGS | {"online": False, "batch_size": 32, "capacity": 2_000}
LEARNERS = {
    "without replay": QLearning(**SETTINGS),
    "replay, as many updates": QLearning(**REPLAY, train_period=32),
    "replay, 32 times as many updates": QLearning(**REPLAY, train_period=1),
}


def train(learner: QLearning, seeds: list[int], episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each seed was in each state (R, S) in its episodes, and its action values (R, S, A)."""
    R = len(seeds)
    env = VisitCounts(make_vector_env("CliffWalking-v1", R))
    agents = learner.agents(env.single_observation_space, env.single_action_space, seeds)
    buffer = ReplayBuffer.for_env(env, learner.capacity, replicas=R, seed=seeds)
    visits, q, left = np.zeros((R, 48), np.int64), np.zeros((R, 48, 4)), np.full(R, episodes)
    step, (obs, _) = 0, env.reset(seed=seeds)
    while left.any():
        step += 1
        action = agents.act(obs[:, None], explore=True)[:, 0]
        next_obs, reward, terminated, truncated, infos = env.step(action)
        ended = terminated | truncated
        if learner.online:
            end = next_obs if not ended.any() else np.where(ended, infos["final_obs"], next_obs).astype(np.int64)
            everyone = np.ones(R, bool)
            agents.observe(Step(obs, action, reward, end, terminated, truncated, action, everyone))
        else:
            buffer.add(
                obs=obs,
                action=action,
                reward=reward,
                next_obs=next_obs,
                terminated=terminated,
                truncated=truncated,
                final_obs=infos.get("final_obs"),
            )
            if step >= learner.learning_starts and step % learner.train_period == 0:
                agents.update(buffer.sample(learner.batch_size))
        last = ended & (left == 1)  # finished seeds continue without being counted
        q[last], visits[last] = agents.q[last], env.visits[last]
        left -= ended & (left > 0)
        obs = next_obs
    return visits, q


def main(arguments: list[str] | None = None) -> None:
    """Train all three, and show them."""
    parser = argparse.ArgumentParser(description="CliffWalking with and without replay.")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/cliff_walking"))
    args = parser.parse_args(arguments)

    grid, visits = Grid.of("CliffWalking-v1"), {}
    for name, learner in LEARNERS.items():
        visits[name], q = train(learner, list(range(args.seeds)), args.episodes)
        stem = name.replace(",", "").replace(" ", "_")
        save(value_map(q, grid, title=f"Values and greedy policy: {name}"), args.out / f"values_{stem}.svg")
        episode = play("CliffWalking-v1", lambda obs, q=q[0]: int(q[obs].argmax()), max_steps=100)
        video = write_video(args.out / stem, episode.frames, episode.fps)
        write_frames(args.out / f"{stem}_frames", episode.frames)
        print(f"{name}, seed 0, greedy: {episode}; {video}")
    save(visit_map(visits, grid, unit="visits of a seed"), args.out / "visits.svg", args.out / "visits.png")

    baseline = visits.pop("without replay")
    for name, counts in visits.items():
        apart, p = share_distance_test(counts, baseline)
        print(f"{name}: {apart:.1%} of the visits are to other states than without (total variation), p = {p:.4f}")
    print(f"figures: {args.out}")


if __name__ == "__main__":
    main()
