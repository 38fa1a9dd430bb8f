"""Claim 2, CliffWalking: with exploration, the best path and the best policy differ.

Sutton & Barto 2018, example 6.6. Exact values by dynamic programming, undiscounted. Q-learning ends with Q* and acts
ε-greedily by it, along the edge of the cliff; Expected SARSA ends with the best values under its own exploration. Off
the path several actions are equally good: the −50.8 is that of ties broken at random. A figure counts as reproduced
if it is equal after rounding to one decimal.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.envs import TransitionTable
from replaylab.learners.tabular.dynamic_programming import epsilon_greedy, expected_return, optimal_values

EPSILON = 0.1


def measure(epsilon: float = EPSILON) -> Iterator[ReplicatedFigure]:
    """Yield the optimal return, and those of the two learners' policies."""
    table = TransitionTable.of("CliffWalking-v1")
    best, best_exploring = optimal_values(table), optimal_values(table, epsilon=epsilon)
    policies = {
        "optimal return": (epsilon_greedy(best), -13.0),
        "Q-learning's expected return with ε = .1": (epsilon_greedy(best, epsilon), -50.8),
        "Expected SARSA's expected return with ε = .1": (epsilon_greedy(best_exploring, epsilon), -20.7),
    }
    for quantity, (policy, published) in policies.items():
        value = expected_return(table, policy)
        yield ReplicatedFigure.exact(quantity, f"{published:g}", value, round(value, 1) == published)


CLAIM = Claim(
    2,
    "CliffWalking",
    "The optimal return is −13; learning on-line with ε = .1, Q-learning gets −50.8 and Expected SARSA −20.7.",
    "Sutton & Barto 2018, example 6.6 (figure 6.4)",
    0.1,
    measure,
)
