"""The number of updates that choosing transitions saves, on Blind Cliffwalk.

    python -m examples.published.blind_cliffwalk

Claim: Choosing transitions saves up to exponentially many updates on Blind Cliffwalk
Source: Schaul et al. 2016, appendix B.1; figures of an independent run
Minutes: 2

The memory holds the transitions of all 2ⁿ action sequences. One is replayed at a time by Q-learning with step size ¼
and γ = 1 − 1/n, until the mean squared error of the 2n values is below 1e-3. Uniform replay needs 12 to 17 updates for
each stored transition, an oracle about 4.5 n² updates; stochastic prioritized replay is between both.

Where the paper leaves room, these details give the figures of the independent run: initial values of standard deviation
0.1; a transition not yet replayed has priority 1, so greedy replays each of them first; the stored TD error is that
before the update; no importance weights. Other details give other figures: with initial values of variance .1 the
oracle needs 107, 315, 432 and 634 updates for n = 4, 8, 10 and 12, greedy 126, 807, 2,468 and 8,758.

A figure counts as reproduced if it is in the range of our 10 runs; a ratio if the interval of our median meets its
bounds. Medians of 10 uniform runs scatter by a tenth, so the ratio of uniform replay is tested on 40.

Shapes: R replicas, N = 2ⁿ⁺¹ − 2 transitions, n states.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.stats
from examples.published.figures import Figure, show
from gymnasium import spaces

from replaylab.envs import TransitionTable
from replaylab.learners import QLearning, Stream, generator
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.learners.tabular.oracle import TrueErrorOracle
from replaylab.replay import Field, Greedy, Prioritized, RankBased, ReplayBuffer, Sampler, Uniform

SAMPLERS = {
    "uniform": Uniform(),
    "proportional": Prioritized(beta=0.0),
    "rank-based": RankBased(beta=0.0),
    "greedy TD": Greedy(),
}
INDEPENDENT = {
    "uniform": {4: 347, 8: 6_438, 10: 27_481, 12: 111_238},
    "greedy TD": {4: 111, 8: 744, 10: 2_373, 12: 8_658},
    "oracle": {4: 97, 8: 320, 10: 475, 12: 663},
}
"""Median updates of the independent run, by number of states."""
RUNS, UNIFORM_RUNS = 10, 40


def memory(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the transitions of all 2ⁿ action sequences, in random order of the sequences, each (N,).

    State i has one right action, i mod 2, that leads to i + 1; the other one ends the episode. The last right
    action gives the only reward, 1, and ends it too. A sequence is followed until the episode ends.
    """
    right = (rng.permutation(2**n)[:, None] >> np.arange(n)) & 1 == 1
    reached = np.cumprod(np.column_stack([np.ones(2**n, np.bool_), right[:, :-1]]), axis=1) == 1
    obs, continues = np.broadcast_to(np.arange(n), right.shape)[reached], right[reached]
    succeeds = continues & (obs == n - 1)
    terminated = ~continues | succeeds
    return {
        "obs": obs,
        "action": np.where(continues, obs % 2, 1 - obs % 2),
        "reward": succeeds.astype(np.float32),
        "next_obs": np.where(terminated, obs, obs + 1),
        "terminated": terminated,
    }


def exact_values(n: int) -> np.ndarray:
    """Return Q* (n, 2) for γ = 1 − 1/n."""
    return optimal_values(TransitionTable.of("replaylab/BlindCliffwalk-v0", n=n), 1.0 - 1.0 / n)


def updates(n: int, sampler: Sampler, seeds: Sequence[int]) -> np.ndarray:
    """Return how many single-transition updates each replica needs until it has converged, (R,)."""
    settings = QLearning(alpha=0.25, gamma=1.0 - 1.0 / n, initial_std=0.1, online=False, batch_size=1)
    agents = settings.agents(spaces.Discrete(n), spaces.Discrete(2), seeds)
    memories = [memory(n, generator(seed, Stream.ENV_RESET)) for seed in seeds]
    columns = {name: np.stack([rows[name] for rows in memories]) for name in memories[0]}
    fields = {name: Field((), str(column.dtype)) for name, column in columns.items()}
    buffer = ReplayBuffer(2 ** (n + 1) - 2, fields, replicas=len(seeds), sampler=sampler, seed=list(seeds))
    buffer.extend(**columns)
    if isinstance(sampler, TrueErrorOracle):
        sampler.watch(agents, buffer)
    exact, needed, running = exact_values(n), np.zeros(len(seeds), np.int64), np.ones(len(seeds), np.bool_)
    while (running := running & (((agents.q - exact) ** 2).mean((1, 2)) >= 1e-3)).any():
        needed += running
        batch = buffer.sample(1)
        update = agents.update(batch)
        if sampler.wants_feedback:
            buffer.update_priorities(batch.id, update.td_error)
    return needed


def median_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return the two order statistics between which the median is with a chance of `level` or more (N ≥ 6)."""
    below = int(scipy.stats.binom.ppf((1.0 - level) / 2.0, len(values), 0.5))
    ordered = np.sort(values)
    return float(ordered[below - 1]), float(ordered[-below])


def figures(sizes: Sequence[int] = (4, 8, 10, 12)) -> Iterator[Figure]:
    """Yield the updates of every sampler and size, the order of the samplers, and both ratios."""
    for n in sizes:
        samplers = SAMPLERS | {"oracle": TrueErrorOracle(exact_values(n))}
        counts = {
            name: updates(n, sampler, range(UNIFORM_RUNS if name == "uniform" else RUNS))
            for name, sampler in samplers.items()
        }
        for name, of_runs in counts.items():
            value, low, high = (float(of(of_runs[:RUNS])) for of in (np.median, np.min, np.max))
            published = INDEPENDENT.get(name, {}).get(n)
            agrees = None if published is None else low <= published <= high
            text = "" if published is None else f"{published:,}"
            yield Figure(f"{name}, n = {n}: updates", text, value, agrees, (low, high), f"median, range of {RUNS} runs")
        yield order(n, {name: float(np.median(of_runs)) for name, of_runs in counts.items()})
        if n >= 8:
            transitions = 2 ** (n + 1) - 2
            yield ratio(f"uniform, n = {n}: updates / transitions", counts["uniform"] / transitions, 12.0, 17.0)
            yield ratio(f"oracle, n = {n}: updates / n²", counts["oracle"] / n**2, 4.0, 5.0)


def order(n: int, medians: dict[str, float]) -> Figure:
    """Compare medians: uniform is above the stochastic prioritized ones, which are above the oracle."""
    faster, slower = sorted([medians["proportional"], medians["rank-based"]])
    agrees = medians["uniform"] > slower and faster > medians["oracle"]
    ends = (medians["uniform"] / slower, medians["uniform"] / faster)
    return Figure(
        f"n = {n}: uniform / prioritized, above the oracle", "> 1", ends[0], agrees, ends, "slower and faster"
    )


def ratio(quantity: str, ratios: np.ndarray, least: float, most: float) -> Figure:
    """Return a median that must be between two bounds."""
    low, high = median_interval(ratios)
    agrees = low <= most and high >= least
    kind = f"median of {len(ratios)} runs, 95 %"
    return Figure(quantity, f"{least:g} to {most:g}", float(np.median(ratios)), agrees, (low, high), kind)


if __name__ == "__main__":
    raise SystemExit(show(figures()))
