"""Claim 1, Blind Cliffwalk: the number of updates that choosing transitions saves.

Schaul, Quan, Antonoglou & Silver 2016, appendix B.1, with a table of values. Where the paper leaves room, these
details give the figures of an independent run: initial values of standard deviation 0.1; the mean squared error
is over all 2n action values; a transition not yet replayed has the priority 1, so greedy replays every one of
them first; the stored TD error is the one from before the update; no importance weights. Other details give other
figures for n = 4, 8, 10 and 12: with errors weighted by how often each value is stored the oracle needs 145, 1,350,
4,027 and 12,560 updates; with initial values of variance .1 it needs 107, 315, 432 and 634, greedy 126, 807, 2,468 and
8,758.

A figure counts as reproduced if it lies in the range of our 10 runs, a distribution if the interval of our median
meets its bounds. Medians of 10 runs of uniform replay scatter by a tenth, so that its sampling distribution is tested
on 40.

Shapes: R replicas, N = 2ⁿ⁺¹ − 2 transitions, which are the complete memory, n states.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats
from gymnasium import spaces

from replaylab.claims.claim import Claim, ReplicatedFigure, agreement
from replaylab.envs import TransitionTable
from replaylab.learners import QLearning
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.learners.tabular.oracle import TrueErrorOracle
from replaylab.replay import Field, Greedy, Prioritized, RankBased, ReplayBuffer, Sampler, Uniform

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


SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "uniform": lambda _: Uniform(),
    "proportional": lambda _: Prioritized(beta=0.0),
    "rank-based": lambda _: RankBased(beta=0.0),
    "greedy TD": lambda _: Greedy(),
    "oracle": lambda n: TrueErrorOracle(exact_values(n)),
}
"""By the number of states."""
INDEPENDENT = {
    "uniform": {4: 347, 8: 6_438, 10: 27_481, 12: 111_238},
    "greedy TD": {4: 111, 8: 744, 10: 2_373, 12: 8_658},
    "oracle": {4: 97, 8: 320, 10: 475, 12: 663},
}
"""Median updates until convergence of an independent run, by number of states."""
SIZES = (4, 8, 10, 12)
RUNS = 10
DISTRIBUTION_RUNS = 40

Counts = npt.NDArray[np.int64]


def updates(name: str, n: int, seeds: Sequence[int]) -> Counts:
    """Return the updates until convergence of each seed, (R,)."""
    return updates_until_convergence(n, SAMPLERS[name](n), seeds)


def measure(sizes: Sequence[int] = SIZES) -> Iterator[ReplicatedFigure]:
    """Yield the updates until convergence of every sampler and size, and the sampling distributions."""
    for n in sizes:
        runs = {name: updates(name, n, range(DISTRIBUTION_RUNS if name == "uniform" else RUNS)) for name in SAMPLERS}
        for name, counts in runs.items():
            yield _figure(name, n, counts[:RUNS])
        yield _order(n, runs)
        if n >= 8:
            yield _distribution(
                "uniform", n, runs["uniform"] / (2 ** (n + 1) - 2), "updates / transitions", (12.0, 17.0)
            )
            yield _distribution("oracle", n, runs["oracle"] / n**2, "updates / n²", (4.0, 5.0))


def median_interval(values: npt.NDArray[Any], level: float = 0.95) -> tuple[float, float]:
    """Return the two order statistics between which the median lies with a chance of `level` or more (N ≥ 6)."""
    below = int(scipy.stats.binom.ppf((1.0 - level) / 2.0, len(values), 0.5))
    ordered = np.sort(values)
    return float(ordered[below - 1]), float(ordered[-below])


def _figure(name: str, n: int, counts: Counts) -> ReplicatedFigure:
    low, high = float(counts.min()), float(counts.max())
    published = INDEPENDENT.get(name, {}).get(n)
    return ReplicatedFigure(
        f"{name}, n = {n}: updates until convergence",
        "gives none" if published is None else f"{published:,}",
        float(np.median(counts)),
        low,
        high,
        f"median and range of {len(counts)} runs",
        None if published is None else agreement(low <= published <= high),
    )


def _order(n: int, counts: dict[str, Counts]) -> ReplicatedFigure:
    """Compare medians: the slower of the stochastic prioritized ones with both neighbours."""
    medians = {name: float(np.median(count)) for name, count in counts.items()}
    stochastic = [medians["proportional"], medians["rank-based"]]
    holds = medians["uniform"] > max(stochastic) and min(stochastic) > medians["oracle"]
    return ReplicatedFigure(
        f"n = {n}: uniform / slower of the stochastic prioritized",
        "> 1, and both above the oracle",
        medians["uniform"] / max(stochastic),
        medians["uniform"] / max(stochastic),
        medians["uniform"] / min(stochastic),
        "slower and faster one, medians",
        agreement(holds),
    )


def _distribution(
    name: str, n: int, ratios: npt.NDArray[np.float64], unit: str, bounds: tuple[float, float]
) -> ReplicatedFigure:
    low, high = median_interval(ratios)
    return ReplicatedFigure(
        f"{name}, n = {n}: {unit}",
        f"{bounds[0]:g} to {bounds[1]:g}",
        float(np.median(ratios)),
        low,
        high,
        f"median of {len(ratios)} runs, 95 %",
        agreement(low <= bounds[1] and high >= bounds[0]),
    )


CLAIM = Claim(
    1,
    "Blind Cliffwalk",
    "Choosing transitions well saves up to exponentially many updates: uniform needs 12 to 17 updates per stored "
    "transition, an oracle about 4.5 n², stochastic prioritized replay lies between.",
    "Schaul et al. 2016, appendix B.1; figures of an independent run",
    2,
    measure,
)
