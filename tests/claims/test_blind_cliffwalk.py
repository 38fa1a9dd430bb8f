"""The Blind Cliffwalk experiment: its world in closed form, its figures at a small size."""

import math

import numpy as np
import pytest

from replaylab.claims import ReplicationOutcome, blind_cliffwalk
from replaylab.claims.blind_cliffwalk import exact_values, median_interval, memory, updates_until_convergence
from replaylab.envs import BlindCliffwalkEnv
from replaylab.replay import Greedy


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_memory_holds_every_sequence_as_often_as_random_behaviour_meets_it(n):
    steps = memory(n, np.random.default_rng(0))
    assert len(steps["obs"]) == 2 ** (n + 1) - 2
    for state in range(n):
        for action in range(2):
            here = (steps["obs"] == state) & (steps["action"] == action)
            assert here.sum() == 2 ** (n - 1 - state)
    assert steps["reward"].sum() == 1.0
    assert steps["terminated"].sum() == 2**n  # one end a sequence
    assert steps["terminated"][-1]


def test_memory_follows_each_sequence_to_its_end():
    steps = memory(6, np.random.default_rng(1))
    ends = np.flatnonzero(steps["terminated"])
    assert (steps["obs"][np.append(0, ends[:-1] + 1)] == 0).all()
    inside = np.flatnonzero(~steps["terminated"])
    np.testing.assert_array_equal(steps["obs"][inside + 1], steps["next_obs"][inside])


def test_memory_is_what_the_environment_gives():
    n, steps = 5, memory(5, np.random.default_rng(0))
    env = BlindCliffwalkEnv(n=n)
    obs, _ = env.reset(seed=0)
    for row in range(2 ** (n + 1) - 2):
        next_obs, reward, terminated, truncated, _ = env.step(steps["action"][row])
        given = {"obs": obs, "reward": reward, "next_obs": next_obs, "terminated": terminated}
        assert given == {name: steps[name][row] for name in given}
        obs = env.reset()[0] if terminated or truncated else next_obs


@pytest.mark.parametrize("n", [2, 7])
def test_exact_values_are_powers_of_the_discount(n):
    expected = np.zeros((n, 2))
    for state in range(n):
        expected[state, state % 2] = (1.0 - 1.0 / n) ** (n - 1 - state)
    np.testing.assert_allclose(exact_values(n), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["uniform", "oracle"])
def test_replicas_equal_single_runs(name):
    together = blind_cliffwalk.updates(name, 4, [5, 6, 7])
    assert together.tolist() == [blind_cliffwalk.updates(name, 4, [seed])[0] for seed in (5, 6, 7)]


def test_greedy_replays_every_transition_before_any_small_error():
    """All new transitions have the priority 1, so none can converge before each was seen once."""
    assert (updates_until_convergence(6, Greedy(), range(3)) >= 2**7 - 2).all()


def test_independent_figures_come_out_at_four_states():
    findings = list(blind_cliffwalk.measure(sizes=(4,)))
    assert [f.verdict for f in findings] == [
        ReplicationOutcome.REPRODUCED,
        None,
        None,
        *[ReplicationOutcome.REPRODUCED] * 3,
    ]


@pytest.mark.parametrize(("runs", "low", "high"), [(10, 2, 9), (40, 14, 27)])
def test_median_interval_has_its_level(runs, low, high):
    """Order statistics k and N + 1 − k hold the median with the chance of k to N − k heads in N tosses."""
    assert median_interval(np.arange(runs, 0, -1)) == (low, high)
    assert sum(math.comb(runs, heads) for heads in range(low, runs - low + 1)) / 2**runs >= 0.95
    assert sum(math.comb(runs, heads) for heads in range(low + 1, runs - low)) / 2**runs < 0.95
