"""Tabular updates per second on Taxi, beside the loop people write by hand.

    python -m benchmarks.tabular --replicas 64 --batch-size 32

Both do Q-learning as in the Taxi experiment: for each environment step one online update and a replayed batch, drawn
uniformly from the last 1,000 steps. The library does `--replicas` seeds together, the plain loop, in Python over a
NumPy table, one. "learning" is the online update, the draw and the replayed update; "all" is everything else besides:
acting, the environment and storing. They run in turn, several rounds, on one thread; the medians are compared.
"""

import statistics
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from benchmarks import harness
from replaylab.envs import make_vector_env
from replaylab.learners import QLearning, Step
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.replay import Prioritized, ReplayBuffer, Sampler, Uniform

TAXI = max(name for name in gym.registry if name.startswith("Taxi-"))
CAPACITY, ALPHA, GAMMA, EPSILON = 1_000, 0.5, 0.99, 0.1


@dataclass
class Rate:
    """Updates, and the seconds they took: by themselves, and with all that belongs to them."""

    updates: int
    learning: float
    everything: float


def replaylab_learners(sampler: Sampler, replicas: int, batch_size: int, steps: int) -> Rate:
    seeds = list(range(replicas))
    env = make_vector_env(TAXI, replicas)
    learner = QLearning(alpha=ALPHA, gamma=GAMMA, batch_size=batch_size, learning_starts=max(batch_size, 1))
    agents = learner.agents(env.single_observation_space, env.single_action_space, seeds)
    buffer = ReplayBuffer.for_env(env, CAPACITY, replicas=replicas, sampler=sampler, seed=seeds)
    explore, everywhere = EpsilonGreedy(seeds), np.ones(replicas, np.bool_)
    obs, _ = env.reset(seed=seeds)
    learning, start = 0.0, time.perf_counter()
    for _ in range(steps):
        action = explore(agents.q_values(obs[:, None])[:, 0], EPSILON)
        next_obs, reward, terminated, truncated, infos = env.step(action)
        row = {"obs": obs, "action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        buffer.add(**row, next_obs=next_obs, final_obs=infos.get("final_obs"))
        last = next_obs
        if "final_obs" in infos:
            last = np.where(infos["_final_obs"], infos["final_obs"], next_obs).astype(np.int64)
        begin = time.perf_counter()
        agents.observe(Step(**row, next_obs=last, next_action=action, where=everywhere))
        batch = buffer.sample(batch_size, progress=0.5)
        update = agents.update(batch)
        if sampler.wants_feedback:
            buffer.update_priorities(batch.id, update.td_error)
        learning += time.perf_counter() - begin
        obs = next_obs
    return Rate(replicas * steps * (1 + batch_size), learning, time.perf_counter() - start)


def plain(batch_size: int, steps: int) -> Rate:
    env, rng = gym.make(TAXI), np.random.default_rng(0)
    q = np.zeros((env.observation_space.n, env.action_space.n))  # type: ignore[attr-defined]
    memory: list[tuple[int, int, float, int, bool]] = []

    def learn(obs: int, action: int, reward: float, next_obs: int, terminated: bool) -> None:
        target = reward + GAMMA * (not terminated) * q[next_obs].max()
        q[obs, action] += ALPHA * (target - q[obs, action])

    obs, _ = env.reset(seed=0)
    learning, start = 0.0, time.perf_counter()
    for step in range(steps):
        action = int(rng.integers(q.shape[1])) if rng.random() < EPSILON else int(q[obs].argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        row = (obs, action, float(reward), next_obs, terminated)
        if len(memory) < CAPACITY:
            memory.append(row)
        else:
            memory[step % CAPACITY] = row
        begin = time.perf_counter()
        learn(*row)
        for i in rng.integers(len(memory), size=batch_size):
            learn(*memory[i])
        learning += time.perf_counter() - begin
        obs = env.reset()[0] if terminated or truncated else next_obs
    return Rate(steps * (1 + batch_size), learning, time.perf_counter() - start)


def main() -> None:
    parser = harness.parser(__doc__, 5, writes_json=True)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2_000, help="environment steps of each replica in a round")
    options = parser.parse_args()

    size = (options.replicas, options.batch_size)
    contestants = {
        "uniform": lambda: replaylab_learners(Uniform(), *size, options.steps),
        "prioritized": lambda: replaylab_learners(Prioritized(), *size, options.steps),
        "plain loop": lambda: plain(options.batch_size, options.steps),
    }
    rounds = harness.take_turns(contestants, options.rounds)
    print(f"{options.replicas} replicas on {TAXI}, 1 online and {options.batch_size} replayed updates a step\n")
    print(f"{'million updates a second':28}{'learning':>10}{'all':>10}")
    figures = {}
    for name, rates in rounds.items():
        learning, everything = (
            statistics.median(r.updates / seconds(r) for r in rates) / 1e6
            for seconds in (lambda r: r.learning, lambda r: r.everything)
        )
        figures[name] = {"learning": learning, "all": everything}
        print(f"{name:28}{learning:10.2f}{everything:10.2f}")
    harness.write_json(options.json, {"million_updates_per_second": figures})


if __name__ == "__main__":
    main()
