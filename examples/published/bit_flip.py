"""The gain of hindsight if success by chance is out of reach: bit flip with more and more bits.

    python -m examples.published.bit_flip

Claim: Without hindsight deep Q-learning fails beyond about 13 bits; with it, it learns up to 50
Source: Andrychowicz et al. 2017, section 3.1 and figure 1
Minutes: 10

For each number of bits, with and without hindsight, at most 800 cycles (of 16 episodes and 40 updates) in each of 3
runs, fewer once all have solved it: a run has solved it when 95 of 100 greedy episodes reach their goal. "Learns" is
reproduced if all runs solve it, "fails" if none reaches its goal in more than 10 of 100. Near n = 13, where the budget
decides, nothing is tested. One hidden layer of 256, targets clipped to [−1/(1 − γ), 0].

Shapes: R replicas, E episodes side by side, n bits.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from examples.published.figures import Figure, show
from gymnasium import spaces

from replaylab.envs.goals import compute_reward, compute_terminated
from replaylab.learners import DQN, Agents, Stream, generator
from replaylab.replay import Field, Hindsight, ReplayBuffer

EPISODES, UPDATES, EPSILON = 16, 40, 0.2
SOLVED, FAILED, TEST_EPISODES = 95, 10, 100
PLAN = ((True, (5, 10, 15, 20, 30)), (False, (5, 10, 15, 20)))
"""With hindsight or not, and the numbers of bits."""
FAILS_BEYOND = 13
DEEP_Q = DQN(
    hidden=(256,),
    learning_rate=1e-3,
    gamma=0.98,
    batch_size=128,
    double=False,
    loss="squared",
    max_grad_norm=None,
    target_range=(-50.0, 0.0),
    target_period=UPDATES,  # with tau: the target network moves by a twentieth after each cycle
    tau=0.05,
)


def goal_space(n: int) -> spaces.Dict:
    """Return the observation space of a goal environment with n bits."""
    return spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), spaces.MultiBinary(n)))


def buffer_of(n: int, seeds: Sequence[int], hindsight: bool, cycles: int) -> ReplayBuffer:
    """Return a buffer that holds the steps of all cycles, up to a million; hindsight is "future" with k = 4."""
    goals = {key: Field((n,), "int8") for key in goal_space(n)}
    flags = {name: Field((), "bool") for name in ("terminated", "truncated")}
    return ReplayBuffer(
        min(1_000_000, cycles * EPISODES * n),
        {"obs": goals, "action": Field((), "int64"), "reward": Field(), "next_obs": goals, **flags},
        replicas=len(seeds),
        num_envs=EPISODES,
        transforms=[Hindsight(compute_reward, compute_terminated)] if hindsight else [],
        seed=list(seeds),
    )


def play(
    agents: Agents,
    n: int,
    episodes: int,
    starts: Sequence[np.random.Generator],
    explore: Sequence[np.random.Generator] = (),
    buffer: ReplayBuffer | None = None,
) -> np.ndarray:
    """Play E episodes of each replica side by side, and return how many reach their goal, (R,)."""
    bits, goal = np.stack([rng.integers(2, size=(2, episodes, n), dtype=np.int8) for rng in starts], axis=1)
    running = np.ones(bits.shape[:2], np.bool_)
    for step in range(n):
        obs = {"observation": bits, "achieved_goal": bits, "desired_goal": goal}
        action = agents.act(obs, explore=False)
        for r, rng in enumerate(explore):
            at_random = rng.random(episodes) < EPSILON
            action[r, at_random] = rng.integers(n, size=episodes)[at_random]
        bits = bits.copy()
        np.put_along_axis(bits, action[..., None], 1 - np.take_along_axis(bits, action[..., None], -1), -1)
        terminated = compute_terminated(bits, goal, {})
        if buffer is not None:
            next_obs = {"observation": bits, "achieved_goal": bits, "desired_goal": goal}
            reward, truncated = compute_reward(bits, goal, {}), np.full(running.shape, step == n - 1) & ~terminated
            flags = {"terminated": terminated, "truncated": truncated}
            buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **flags, where=running)
        running = running & ~terminated  # an episode that starts at its goal continues
    return np.count_nonzero(~running, axis=1)


def trained(n: int, hindsight: bool, seeds: Sequence[int], cycles: int, every: int) -> tuple[int, np.ndarray]:
    """Return after how many cycles all runs have solved it, and each one's successes in 100 greedy episodes, (R,)."""
    agents: Agents = DEEP_Q.agents(goal_space(n), spaces.Discrete(n), list(seeds))
    starts, explore, tests = (
        [generator(seed, stream) for seed in seeds]
        for stream in (Stream.ENV_RESET, Stream.EXPLORATION, Stream.EVALUATION)
    )
    buffer = buffer_of(n, seeds, hindsight, cycles)
    for cycle in range(1, cycles + 1):
        play(agents, n, EPISODES, starts, explore, buffer)
        for _ in range(UPDATES):
            agents.update(buffer.sample(DEEP_Q.batch_size))
        if cycle % every == 0 or cycle == cycles:
            successes = play(agents, n, TEST_EPISODES, tests)
            if (successes >= SOLVED).all():
                break
    return cycle, successes


def figures(plan=PLAN, seeds: Sequence[int] = range(3), cycles: int = 800, every: int = 20) -> Iterator[Figure]:
    """Yield the share of successes at the end for every number of bits."""
    for hindsight, n in ((hindsight, n) for hindsight, sizes in plan for n in sizes):
        cycle, successes = trained(n, hindsight, seeds, cycles, every)
        learns = hindsight or n <= FAILS_BEYOND
        agrees = bool((successes >= SOLVED).all() if learns else (successes <= FAILED).all())
        share, low, high = (float(of(successes)) / TEST_EPISODES for of in (np.mean, np.min, np.max))
        quantity = f"{'with' if hindsight else 'without'} hindsight, n = {n}: successes after {cycle} cycles"
        published = "learns" if learns else "fails"
        yield Figure(quantity, published, share, agrees, (low, high), f"mean and range of {len(seeds)} runs")


if __name__ == "__main__":
    raise SystemExit(show(figures()))
