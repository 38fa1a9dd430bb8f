"""With exploration, the best path and the best policy differ: the exact returns on CliffWalking.

    python -m examples.published.cliff_walking

Claim: The optimal return on CliffWalking is −13; online with ε = .1, Q-learning gets −50.8 and Expected SARSA −20.7
Source: Sutton & Barto 2018, example 6.6
Minutes: 1

Exact values by dynamic programming, undiscounted. Q-learning ends with Q* and acts ε-greedily by it, along the edge of
the cliff; Expected SARSA ends with the best values under its own exploration. Off the path several actions are equally
good: −50.8 is for ties broken at random. A figure counts as reproduced if it is equal after rounding to one decimal.
"""

from collections.abc import Iterator

from examples.published.figures import Figure, show

from replaylab.envs import TransitionTable
from replaylab.learners.tabular.dynamic_programming import epsilon_greedy, expected_return, optimal_values


def figures(epsilon: float = 0.1) -> Iterator[Figure]:
    """Yield the optimal return, and those of the two learners' policies."""
    table = TransitionTable.of("CliffWalking-v1")
    best, best_exploring = optimal_values(table), optimal_values(table, epsilon=epsilon)
    policies = {
        "optimal return": (epsilon_greedy(best), -13.0),
        f"Q-learning's expected return with ε = {epsilon:g}": (epsilon_greedy(best, epsilon), -50.8),
        f"Expected SARSA's expected return with ε = {epsilon:g}": (epsilon_greedy(best_exploring, epsilon), -20.7),
    }
    for quantity, (policy, published) in policies.items():
        value = expected_return(table, policy)
        yield Figure(quantity, f"{published:g}", value, round(value, 1) == published)


if __name__ == "__main__":
    raise SystemExit(show(figures()))
