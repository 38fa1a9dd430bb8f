import numpy as np
from scipy import stats

from replaylab.learners.api.exploration import EpsilonGreedy

Q = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 1.0]], np.float32)


def test_greedy_without_epsilon():
    explore = EpsilonGreedy([0, 1])
    for _ in range(3):
        np.testing.assert_array_equal(explore(Q, 0.0), [1, 0])


def test_actions_follow_the_distribution():
    """False-alarm rate 1e-7 for each replica, seeds fixed."""
    explore, epsilon, steps = EpsilonGreedy([0, 1]), 0.3, 20_000
    actions = np.array([explore(Q, epsilon) for _ in range(steps)])
    for r, best in enumerate([1, 0]):
        distribution = np.full(3, epsilon / 3)
        distribution[best] += 1 - epsilon
        assert stats.chisquare(np.bincount(actions[:, r], minlength=3), distribution * steps).pvalue > 1e-7


def test_draws_depend_on_the_replicas_seed_and_step_alone():
    population, single = EpsilonGreedy([5, 6, 7]), EpsilonGreedy([6])
    single.BLOCK = single._next = 10
    for step in range(2_500):
        epsilon = 0.5 if step % 3 else 0.0
        q = np.random.default_rng(step).random((3, 4)).astype(np.float32)
        assert population(q, epsilon)[1] == single(q[1:2], epsilon)[0]


def test_values_that_are_no_numbers_hide_no_other_replicas_ties():
    population, single = EpsilonGreedy([5, 6]), EpsilonGreedy([6])
    q = np.array([[np.nan, np.nan, np.nan], [1.0, 0.0, 1.0]])
    assert {tuple(population(q, 0.0) == [0, single(q[1:], 0.0)[0]]) for _ in range(50)} == {(True, True)}


def test_ties_are_broken_at_random():
    """False-alarm rate 1e-7 for each replica, seeds fixed."""
    q, steps = np.array([[1.0, 0.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 3.0, 0.0]]), 20_000
    explore = EpsilonGreedy([0, 1, 2])
    actions = np.array([explore(q, 0.0) for _ in range(steps)])
    assert stats.chisquare(np.bincount(actions[:, 0], minlength=4)[[0, 2, 3]]).pvalue > 1e-7
    assert not (actions[:, 0] == 1).any()
    assert stats.chisquare(np.bincount(actions[:, 1], minlength=4)).pvalue > 1e-7
    assert (actions[:, 2] == 2).all()
