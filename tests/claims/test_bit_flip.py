"""The bit-flip protocol: its episodes are the environment's, and hindsight learns a small one."""

import numpy as np

from replaylab.claims import ReplicationOutcome, bit_flip
from replaylab.claims.bit_flip import EPISODES, UPDATES, BitFlipRuns, Episodes
from replaylab.envs import BitFlipEnv


def test_episodes_are_those_of_the_environment():
    n, episodes = 3, Episodes.start(3, 40, [np.random.default_rng(seed) for seed in (0, 1)])
    env, rng = BitFlipEnv(n=n), np.random.default_rng(2)
    bits, goal = episodes.bits[1, 7].copy(), episodes.goal[1, 7].copy()
    ended = False
    for step in range(n):
        action = rng.integers(n, size=(2, 40))
        got = episodes.step(action, last=step == n - 1)
        assert got["where"][1, 7] == (not ended)
        flipped = bits.copy()
        flipped[action[1, 7]] ^= 1
        np.testing.assert_array_equal(got["obs"]["observation"][1, 7], bits)
        np.testing.assert_array_equal(got["next_obs"]["achieved_goal"][1, 7], flipped)
        np.testing.assert_array_equal(got["next_obs"]["desired_goal"][1, 7], goal)
        reached = bool((flipped == goal).all())
        assert got["terminated"][1, 7] == reached
        assert got["truncated"][1, 7] == (step == n - 1 and not reached)
        assert got["reward"][1, 7] == env.compute_reward(flipped[None], goal[None], {})[0]
        bits, ended = flipped, ended or reached
    assert episodes.running[1, 7] == (not ended)


def test_a_cycle_is_16_episodes_and_40_updates():
    runs = BitFlipRuns(4, [0], hindsight=False, cycles=3)
    for _ in range(2):
        runs.cycle()
    assert runs.agents.updates == 2 * UPDATES
    stored = runs.buffer.get(np.arange(len(runs.buffer))[None])
    assert (stored["terminated"] ^ stored["truncated"]).sum() == 2 * EPISODES


def test_batches_hold_goals_of_hindsight_only_where_asked():
    for hindsight in (False, True):
        runs = BitFlipRuns(6, [0], hindsight=hindsight, cycles=1)
        runs.cycle()
        batch = runs.buffer.sample(500)
        assert ("relabelled" in batch) == hindsight


def test_hindsight_learns_five_bits():
    (finding,) = bit_flip.measure(plan=[(True, (5,))], seeds=(0, 1), cycles=60)
    assert finding.verdict is ReplicationOutcome.REPRODUCED
    assert finding.low >= 0.95


def test_no_learning_is_no_success():
    """After a single cycle nobody has learned 14 bits; the claim of hindsight would then not be reproduced."""
    with_it, without = bit_flip.measure(plan=[(True, (14,)), (False, (14,))], seeds=(0,), cycles=1)
    assert with_it.verdict is ReplicationOutcome.NOT_REPRODUCED
    assert without.verdict is ReplicationOutcome.REPRODUCED
