"""Claim 3, bit flip: the gain of hindsight if success by chance is out of reach.

Andrychowicz et al. 2017, section 3.1 and figure 1. For each number of bits, with and without hindsight, at most
800 cycles (of 16 episodes and 40 updates) in each of 3 runs, fewer once all have solved it: a run has solved it when
95 of 100 greedy episodes reach their goal. "Learns" is reproduced if all runs solve it, "fails" if none reaches its
goal in more than 10 of 100. Near n = 13, where the budget decides, nothing is tested.

Shapes: R replicas, E episodes at once, n bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.claims.claim import Claim, ReplicatedFigure, agreement
from replaylab.envs.goals import compute_reward, compute_terminated
from replaylab.learners import DQN
from replaylab.learners.api.protocols import Agents
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.replay import Field, Hindsight, ReplayBuffer

EPISODES = 16
"""Episodes in a cycle; the policy does not change within one, so they are played side by side."""
UPDATES = 40
EPSILON = 0.2
CAPACITY = 1_000_000
TEST_EPISODES = 100

DEEP_Q = DQN(
    hidden=(256,),
    learning_rate=1e-3,
    gamma=0.98,
    batch_size=128,
    double=False,
    loss="squared",
    max_grad_norm=None,
    target_range=(-50.0, 0.0),
    target_period=UPDATES,
    tau=0.05,
)
"""The target network moves a twentieth of the way after each cycle; targets are clipped to [−1/(1 − γ), 0]."""

Bits = npt.NDArray[np.int8]


@dataclass
class Episodes:
    """R·E episodes of bit flip that are played side by side, until all have ended.

    Attributes:
        bits: int8 (R, E, n).
        goal: int8 (R, E, n).
        running: Whether each episode still runs, bool (R, E).
    """

    bits: Bits
    goal: Bits
    running: npt.NDArray[np.bool_]

    @classmethod
    def start(cls, n: int, episodes: int, generators: Sequence[np.random.Generator]) -> "Episodes":
        """Draw bits and goals uniformly, replica r by generator r; an episode that starts at its goal continues."""
        drawn = np.stack([rng.integers(2, size=(2, episodes, n), dtype=np.int8) for rng in generators])
        return cls(drawn[:, 0], drawn[:, 1], np.ones((*drawn.shape[:1], episodes), np.bool_))

    @property
    def obs(self) -> dict[str, Bits]:
        """Observation, in the form of a GoalEnv."""
        return {"observation": self.bits, "achieved_goal": self.bits, "desired_goal": self.goal}

    def step(self, action: npt.NDArray[np.int64], last: bool) -> dict[str, Any]:
        """Flip bits (R, E) and return the transition; all episodes end with the `last` step."""
        before = self.obs
        flipped = self.bits.copy()
        np.put_along_axis(flipped, action[..., None], 1 - np.take_along_axis(flipped, action[..., None], -1), -1)
        self.bits = flipped
        terminated = compute_terminated(self.bits, self.goal, {})
        was_running, self.running = self.running, self.running & ~terminated
        return {
            "obs": before,
            "action": action,
            "reward": compute_reward(self.bits, self.goal, {}),
            "next_obs": self.obs,
            "terminated": terminated,
            "truncated": np.full(terminated.shape, last) & ~terminated,
            "where": was_running,
        }


class BitFlipRuns:
    """R runs of deep Q-learning on n bits, with hindsight or without.

    Args:
        n: Number of bits, and the length of an episode.
        seeds: One for each replica.
        hindsight: Whether goals are relabelled (future, k = 4).
        cycles: The most cycles that will be run; the buffer holds what they give, up to a million steps.
    """

    def __init__(self, n: int, seeds: Sequence[int], *, hindsight: bool, cycles: int) -> None:
        bits = spaces.MultiBinary(n)
        space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), bits))
        self.n, self.hindsight = n, hindsight
        self.agents: Agents = DEEP_Q.agents(space, spaces.Discrete(n), list(seeds))
        self._starts = [generator(seed, Stream.ENV_RESET) for seed in seeds]
        self._exploration = [generator(seed, Stream.EXPLORATION) for seed in seeds]
        self._tests = [generator(seed, Stream.EVALUATION) for seed in seeds]
        goals = {key: Field((n,), "int8") for key in space.spaces}
        self.buffer = ReplayBuffer(
            min(CAPACITY, cycles * EPISODES * n),
            {
                "obs": goals,
                "action": Field((), "int64"),
                "reward": Field(),
                "next_obs": goals,
                "terminated": Field((), "bool"),
                "truncated": Field((), "bool"),
            },
            replicas=len(seeds),
            num_envs=EPISODES,
            transforms=[Hindsight(compute_reward, compute_terminated)] if hindsight else [],
            seed=list(seeds),
        )

    def cycle(self) -> None:
        """Play 16 episodes with 20 % random actions, then learn from 40 batches."""
        episodes = Episodes.start(self.n, EPISODES, self._starts)
        for step in range(self.n):
            self.buffer.add(**episodes.step(self._explore(episodes), last=step == self.n - 1))
        for _ in range(UPDATES):
            self.agents.update(self.buffer.sample(DEEP_Q.batch_size))

    def successes(self) -> npt.NDArray[np.int64]:
        """Return how many of 100 greedy episodes of each replica reach their goal, (R,)."""
        episodes = Episodes.start(self.n, TEST_EPISODES, self._tests)
        for step in range(self.n):
            episodes.step(self.agents.act(episodes.obs, explore=False), last=step == self.n - 1)
        reached: npt.NDArray[np.int64] = np.count_nonzero(~episodes.running, axis=1)
        return reached

    def _explore(self, episodes: Episodes) -> npt.NDArray[np.int64]:
        action: npt.NDArray[np.int64] = self.agents.act(episodes.obs, explore=False)
        for r, rng in enumerate(self._exploration):
            at_random = rng.random(EPISODES) < EPSILON
            action[r, at_random] = rng.integers(self.n, size=EPISODES)[at_random]
        return action


def success_curve(runs: BitFlipRuns, cycles: int, every: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Run cycles; after every `every`-th yield their number and each replica's successes in 100 episodes."""
    for cycle in range(1, cycles + 1):
        runs.cycle()
        if cycle % every == 0 or cycle == cycles:
            yield cycle, runs.successes()


SOLVED, FAILED = 95, 10
CYCLES = 800
EVERY = 20
PLAN = ((True, (5, 10, 15, 20, 30)), (False, (5, 10, 15, 20)))
"""With hindsight or not, and the numbers of bits."""
FAILS_BEYOND = 13


def measure(
    plan: Sequence[tuple[bool, Sequence[int]]] = PLAN, seeds: Sequence[int] = range(3), cycles: int = CYCLES
) -> Iterator[ReplicatedFigure]:
    """Yield the share of successes at the end for every number of bits."""
    for hindsight, sizes in plan:
        for n in sizes:
            yield _finding(n, hindsight, seeds, cycles)


def _finding(n: int, hindsight: bool, seeds: Sequence[int], cycles: int) -> ReplicatedFigure:
    runs = BitFlipRuns(n, seeds, hindsight=hindsight, cycles=cycles)
    curve = success_curve(runs, cycles, EVERY)
    cycle, successes = next(curve)
    while cycle < cycles and not (successes >= SOLVED).all():
        cycle, successes = next(curve)
    learns = hindsight or n <= FAILS_BEYOND
    holds = bool((successes >= SOLVED).all() if learns else (successes <= FAILED).all())
    shares = successes / TEST_EPISODES
    return ReplicatedFigure(
        f"{'with' if hindsight else 'without'} hindsight, n = {n}: successes after {cycle} cycles",
        "learns" if learns else "fails",
        float(shares.mean()),
        float(shares.min()),
        float(shares.max()),
        f"mean and range of {len(seeds)} runs",
        agreement(holds),
    )


CLAIM = Claim(
    3,
    "Bit flip",
    "Without hindsight deep Q-learning fails beyond about 13 bits; with it, it learns up to 50.",
    "Andrychowicz et al. 2017, section 3.1",
    10,
    measure,
)
