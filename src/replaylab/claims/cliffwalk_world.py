"""The Blind Cliffwalk with its complete memory, and R tabular Q-learners that replay it one transition at a time.

Shapes: R replicas, N = 2ⁿ⁺¹ − 2 transitions, n states.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab.envs import TransitionTable
from replaylab.learners import QLearning
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.learners.tabular.oracle import TrueErrorOracle
from replaylab.replay import Field, ReplayBuffer, Sampler

STEP_SIZE = 0.25
INITIAL_SCALE = 0.1
"""Standard deviation of the initial values."""
CONVERGED = 1e-3
"""Mean squared error, over all 2n values, below which a run has converged."""

Floats = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]


def memory(n: int, rng: np.random.Generator) -> Columns:
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


def learner(n: int) -> QLearning:
    """Return Q-learning with step size ¼, γ = 1 − 1/n and initial values of standard deviation 0.1."""
    return QLearning(alpha=STEP_SIZE, gamma=1.0 - 1.0 / n, initial_std=INITIAL_SCALE, online=False, batch_size=1)


def exact_values(n: int) -> Floats:
    """Return Q* (n, 2) for γ = 1 − 1/n."""
    return optimal_values(TransitionTable.of("replaylab/BlindCliffwalk-v0", n=n), 1.0 - 1.0 / n)


def updates_until_convergence(n: int, sampler: Sampler, seeds: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return how many single-transition updates each replica needs until it has converged, (R,)."""
    settings, exact = learner(n), exact_values(n)
    agents = settings.agents(spaces.Discrete(n), spaces.Discrete(2), seeds)
    memories = [memory(n, generator(seed, Stream.ENV_RESET)) for seed in seeds]
    columns = {name: np.stack([rows[name] for rows in memories]) for name in memories[0]}
    fields = {name: Field((), str(column.dtype)) for name, column in columns.items()}
    buffer = ReplayBuffer(2 ** (n + 1) - 2, fields, replicas=len(seeds), sampler=sampler, seed=list(seeds))
    buffer.extend(**columns)
    if isinstance(sampler, TrueErrorOracle):
        sampler.watch(agents, buffer)
    needed = np.zeros(len(seeds), np.int64)
    running = np.ones(len(seeds), np.bool_)
    while (running := running & (((agents.q - exact) ** 2).mean((1, 2)) >= CONVERGED)).any():
        needed += running
        batch = buffer.sample(1)
        update = agents.update(batch)
        if sampler.wants_feedback:
            buffer.update_priorities(batch.id, update.td_error)
    return needed
