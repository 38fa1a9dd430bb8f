"""Exact values of environments with a transition table.

Shapes: S states, A actions, K outcomes. Values are sums of rewards discounted by γ, without sampling. Sources: Bellman
1957; Sutton & Barto 2018, chapter 4.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import FRACTION, instance, optional, reals, takes, whole
from replaylab.envs import TransitionTable
from replaylab.errors import ConfigError, ShapeError

if TYPE_CHECKING:  # imported where needed, since every training process imports this module
    from scipy.sparse import csc_array

Values = npt.NDArray[np.float64]

MAX_SWEEPS = 1_000_000
"""Largest number of sweeps with γ = 1."""

MAX_DISCOUNTED_SWEEPS = 20_000
"""Sweeps with γ below 1, after which policy iteration takes over."""

TOLERANCE = 1e-13
"""Tolerance of a sweep's largest change, relative to the largest value if that is above 1."""


_TABLE = instance(TransitionTable, "a TransitionTable")
_NUMBERS = reals(finite=True)
_HORIZON = optional(whole(0))


@takes(table=_TABLE, gamma=FRACTION, epsilon=FRACTION, horizon=_HORIZON)
def optimal_values(
    table: TransitionTable, gamma: float = 1.0, *, epsilon: float = 0.0, horizon: int | None = None
) -> Values:
    """Return the values of the best policy, or of the best among those that act at random with probability ε.

    Value iteration: Q ← E[r + γ·(1 − terminated)·V(s')] with V = (1 − ε)·max Q + ε·mean Q, and with a γ so close to 1
    that this takes long, policy iteration from there. With a horizon the best policy may depend on the time that is
    left.

    Args:
        table: The environment.
        gamma: Discount γ.
        epsilon: ε.
        horizon: Steps after which an episode is cut, without a bootstrap; None: never.

    Returns:
        Q(s, a) at the start of an episode, float64 (S, A).

    Raises:
        ConfigError: The values are not bounded: with γ = 1 an episode may have to end.
    """
    q = np.zeros((table.num_states, table.num_actions))
    if gamma == 1.0 and horizon is None:
        table = _without_idle_states(table, np.ones(q.shape))
    sweeps = MAX_SWEEPS if gamma == 1.0 else MAX_DISCOUNTED_SWEEPS
    for _ in range(sweeps if horizon is None else horizon):
        before = q
        q = _backup(table, gamma, (1.0 - epsilon) * q.max(1) + epsilon * q.mean(1))
        if horizon is None and np.abs(q - before).max() <= TOLERANCE * max(1.0, float(np.abs(q).max())):
            return q
    if horizon is None and gamma == 1.0:
        raise ConfigError(f"`gamma` = {gamma} gives values that do not converge; use a smaller one, or set a `horizon`")
    return q if horizon is not None else _by_policies(table, gamma, epsilon, q)


def _by_policies(table: TransitionTable, gamma: float, epsilon: float, q: Values) -> Values:
    """Return the best values by policy iteration (Howard 1960), γ below 1, from values that give a first policy."""
    chosen, states = q.argmax(1), np.arange(len(q))
    while True:
        policy = np.full(q.shape, epsilon / q.shape[1])
        policy[states, chosen] += 1.0 - epsilon
        q = policy_values(table, policy, gamma)
        better = q.max(1) > q[states, chosen] + 1e-9 * max(1.0, float(np.abs(q).max()))
        if not better.any():
            return q
        chosen = np.where(better, q.argmax(1), chosen)


@takes(table=_TABLE, policy=_NUMBERS, gamma=FRACTION, horizon=_HORIZON)
def policy_values(table: TransitionTable, policy: Values, gamma: float = 1.0, *, horizon: int | None = None) -> Values:
    """Return the values of a policy, by solving Q = E[r + γ·(1 − terminated)·Σ π(a'|s')·Q(s', a')].

    Args:
        table: The environment.
        policy: π(a|s), float (S, A), rows that add up to 1.
        gamma: Discount γ.
        horizon: Steps after which an episode is cut, without a bootstrap; None: never.

    Returns:
        Q(s, a) at the start of an episode, float64 (S, A).

    Raises:
        ShapeError: The policy is not (S, A).
        ConfigError: A row is not probabilities that sum to 1, or with γ = 1 it never ends an episode from some state.
    """
    from scipy import sparse
    from scipy.sparse.linalg import spsolve

    _check_policy(table, policy)
    q = np.zeros(policy.shape)
    if horizon is not None:
        for _ in range(horizon):
            q = _backup(table, gamma, (policy * q).sum(1))
        return q
    if gamma == 1.0:
        table = _without_idle_states(table, policy)
    move = _moves(table, policy)
    if gamma == 1.0:
        _check_ends(table, policy, move)
    reward = (policy[:, :, None] * table.probability * table.reward).sum((1, 2))
    value = spsolve(sparse.eye_array(table.num_states, format="csc") - gamma * move, reward)
    return _backup(table, gamma, value)


@takes(q=_NUMBERS, epsilon=FRACTION)
def epsilon_greedy(q: Values, epsilon: float = 0.0) -> Values:
    """Return the ε-greedy policy of values: π(a|s), float64 (S, A).

    Best actions whose values are equal, up to 1e-9 (of the largest value, if that is above 1), share their chance
    equally.

    Raises:
        ShapeError: The values are not (S, A).
        ConfigError: A value is not finite, or ε is not in [0, 1].
    """
    if q.ndim != 2:
        raise ShapeError(f"`q` must be (S, A), but got {q.shape}")
    best = q >= q.max(1, keepdims=True) - 1e-9 * max(1.0, float(np.abs(q).max()))
    policy: Values = (1.0 - epsilon) * best / best.sum(1, keepdims=True) + epsilon / q.shape[1]
    return policy


@takes(table=_TABLE, policy=_NUMBERS, gamma=FRACTION, horizon=_HORIZON)
def expected_return(table: TransitionTable, policy: Values, gamma: float = 1.0, *, horizon: int | None = None) -> float:
    """Return the mean return of an episode under a policy, over the first states; see `policy_values`.

    Example:
        Q-learning and Expected SARSA on the cliff, exploring with ε = .1 (Sutton & Barto, example 6.6). Which of two
        equally good actions a learner takes matters where it explores: the −50.8 of Q-learning is that of ties broken
        at random; always the first action gives −45.8, the last −51.8.

        >>> cliff = TransitionTable.of("CliffWalking-v1")
        >>> q_learning = epsilon_greedy(optimal_values(cliff), 0.1)
        >>> expected_sarsa = epsilon_greedy(optimal_values(cliff, epsilon=0.1), 0.1)
        >>> round(expected_return(cliff, q_learning), 1), round(expected_return(cliff, expected_sarsa), 1)
        (-50.8, -20.7)
    """
    q = policy_values(table, policy, gamma, horizon=horizon)
    return float(table.start @ (policy * q).sum(1))


def acting_states(table: TransitionTable) -> npt.NDArray[np.bool_]:
    """Return the states in which an episode can act: first states and their successors; bool (S,)."""
    moves = _moves(table, np.ones((table.num_states, table.num_actions)))
    return _closure(table.start > 0.0, (moves > 0.0).T)


def _backup(table: TransitionTable, gamma: float, value: Values) -> Values:
    after = np.where(table.terminated, 0.0, value[table.next_state])
    q: Values = (table.probability * (table.reward + gamma * after)).sum(2)
    return q


def _moves(table: TransitionTable, policy: Values) -> "csc_array":
    """Return the probability of continuing from s to s', (S, S)."""
    from scipy.sparse import csc_array

    chance = np.where(table.terminated, 0.0, policy[:, :, None] * table.probability)
    states = np.arange(table.num_states)
    at = np.broadcast_to(states[:, None, None], chance.shape)
    shape = (table.num_states, table.num_states)
    return csc_array((chance.ravel(), (at.ravel(), table.next_state.ravel())), shape=shape)


def _check_policy(table: TransitionTable, policy: Values) -> None:
    if policy.shape != (table.num_states, table.num_actions):
        raise ShapeError(f"`policy` must be {(table.num_states, table.num_actions)}, but got {policy.shape}")
    if not (policy.min() >= 0.0 and np.abs(policy.sum(1) - 1.0).max() < 1e-9):
        raise ConfigError("`policy` must hold probabilities in each row: none negative, with sum 1")


def _closure(states: npt.NDArray[np.bool_], joins: Any) -> npt.NDArray[np.bool_]:
    """Return states, bool (S,), and all that join them, step by step: i joins j where ``joins[i, j]``."""
    while True:
        further = states | (joins @ states)
        if (further == states).all():
            return states
        states = further


def _without_idle_states(table: TransitionTable, policy: Values) -> TransitionTable:
    """Return the table with an end in states that no episode enters and no policy leaves, such as walls."""
    idle = ~acting_states(table) & ~_ends(table, policy, _moves(table, policy))
    return replace(table, terminated=table.terminated | idle[:, None, None]) if idle.any() else table


def _ends(table: TransitionTable, policy: Values, move: "csc_array") -> npt.NDArray[np.bool_]:
    """Return the states from which a policy can end an episode, bool (S,)."""
    ends: npt.NDArray[np.bool_] = ((policy[:, :, None] * table.probability) * table.terminated).sum((1, 2)) > 0.0
    return _closure(ends, move > 0.0)


def _check_ends(table: TransitionTable, policy: Values, move: "csc_array") -> None:
    ends = _ends(table, policy, move)
    if not ends.all():
        raise ConfigError(
            f"`policy` never ends an episode from state {np.flatnonzero(~ends)[0]}, so with gamma = 1 its value is not "
            "defined; take a smaller gamma, or a `horizon`"
        )
