"""The Blind Cliffwalk with its whole memory, and R tabular Q-learners that replay it one transition at a time.

Shapes: R replicas, N = 2ⁿ⁺¹ − 2 transitions, n states.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.learners.streams import Stream, generator
from replaylab.replay import Field, ReplayBuffer, Sampler

STEP_SIZE = 0.25
INITIAL_SCALE = 0.1
"""Standard deviation of the initial values."""
CONVERGED = 1e-3
"""Mean squared error, over all 2n values, below which a run has converged."""

Floats = npt.NDArray[np.float64]


def memory(n: int, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Return the transitions of all 2ⁿ action sequences, in random order of the sequences, each (N,).

    State i has one right action, i mod 2, that leads to i + 1; the other one ends the episode. The last right
    action gives the only reward, 1, and ends it too. A sequence is followed until the episode ends.
    """
    right = (rng.permutation(2**n)[:, None] >> np.arange(n)) & 1 == 1
    reached = np.cumprod(np.column_stack([np.ones(2**n, np.bool_), right[:, :-1]]), axis=1) == 1
    obs = np.broadcast_to(np.arange(n), right.shape)[reached]
    goes_on = right[reached]
    succeeds = goes_on & (obs == n - 1)
    terminated = ~goes_on | succeeds
    return {
        "obs": obs,
        "action": np.where(goes_on, obs % 2, 1 - obs % 2),
        "reward": succeeds.astype(np.float32),
        "next_obs": np.where(terminated, obs, obs + 1),
        "terminated": terminated,
    }


def exact_values(n: int) -> Floats:
    """Return Q* (n, 2) for γ = 1 − 1/n: γ^(n−1−i) for the right action of state i, 0 for the wrong one."""
    state = np.arange(n)
    values = np.zeros((n, 2))
    values[state, state % 2] = (1.0 - 1.0 / n) ** (n - 1 - state)
    return values


class Learners:
    """R tables of action values, and what their errors are.

    ``Q(s, a) ← Q(s, a) + ¼·δ`` with ``δ = r + γ·max Q(s', ·) − Q(s, a)`` and γ = 1 − 1/n. Initial values are
    normal with standard deviation 0.1.

    Args:
        n: Number of states.
        seeds: One for each replica.

    Attributes:
        q: float64 (R, n, 2).
    """

    def __init__(self, n: int, seeds: Sequence[int]) -> None:
        self.gamma = 1.0 - 1.0 / n
        self.exact = exact_values(n)
        self.q = np.stack(
            [generator(seed, Stream.INITIAL_WEIGHTS).normal(scale=INITIAL_SCALE, size=(n, 2)) for seed in seeds]
        )
        self._rows = np.arange(len(seeds))

    def converged(self) -> npt.NDArray[np.bool_]:
        """Return which replicas' mean squared error over all 2n values is below 1e-3, (R,)."""
        return np.asarray(((self.q - self.exact) ** 2).mean((1, 2)) < CONVERGED)

    def update(self, step: dict[str, npt.NDArray[Any]]) -> Floats:
        """Learn from one transition of each replica, columns (R,); return the TD errors from before it, (R,)."""
        where = self._rows, step["obs"], step["action"]
        following = self.q[self._rows, step["next_obs"]].max(1) * ~step["terminated"]
        td_error: Floats = step["reward"] + self.gamma * following - self.q[where]
        self.q[where] += STEP_SIZE * td_error
        return td_error

    def gain(self, steps: dict[str, npt.NDArray[Any]]) -> Floats:
        """Return by how much one update with each transition (N,) would lower replica 0's squared error, (N,)."""
        where = steps["obs"], steps["action"]
        before = self.q[0][where]
        target = steps["reward"] + self.gamma * self.q[0].max(1)[steps["next_obs"]] * ~steps["terminated"]
        after = before + STEP_SIZE * (target - before)
        lower: Floats = (before - self.exact[where]) ** 2 - (after - self.exact[where]) ** 2
        return lower


SamplerMaker = Callable[[Learners, dict[str, npt.NDArray[Any]]], Sampler]
"""Makes a sampler for learners and the memory (of replica 0), which only an oracle looks at."""


def updates_until_convergence(n: int, make_sampler: SamplerMaker, seeds: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return how many single-transition updates each replica needs until it has converged, (R,)."""
    learners = Learners(n, seeds)
    memories = [memory(n, generator(seed, Stream.ENV_RESET)) for seed in seeds]
    columns = {name: np.stack([one[name] for one in memories]) for name in memories[0]}
    fields = {name: Field((), str(column.dtype)) for name, column in columns.items()}
    sampler = make_sampler(learners, memories[0])
    buffer = ReplayBuffer(2 ** (n + 1) - 2, fields, replicas=len(seeds), sampler=sampler, seed=list(seeds))
    buffer.extend(**columns)
    needed = np.zeros(len(seeds), np.int64)
    running = ~learners.converged()
    while running.any():
        needed += running
        batch = buffer.sample(1)
        td_error = learners.update({name: getattr(batch, name)[:, 0] for name in columns})
        if sampler.wants_feedback:
            buffer.update_priorities(batch.id, td_error[:, None])
        running &= ~learners.converged()
    return needed
