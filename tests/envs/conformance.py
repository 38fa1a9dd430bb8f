"""Rules for every vector environment of this library: equal single ones, depend only on its seeds, and restore."""

from operator import itemgetter

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from replaylab.trees import flatten

SEEDS = [11, 3, 3, 2**40, 0]


def leaves(tree):
    return [leaf for _, leaf in sorted(flatten(tree), key=itemgetter(0))]


def same(left, right, atol=0.0):
    for a, b in zip(leaves(left), leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def at_random(env, obs, rng):
    return rng.integers(env.single_action_space.n, size=env.num_envs)


def equals_single_forms(make, single, mode, steps, act=at_random, atol=0.0, starts=0.0):
    """Compare a vector environment step by step with Gymnasium's, which steps single ones; return how many ended.

    Args:
        make: Makes it, of a number of copies and an autoreset mode.
        single: Makes a single one.
        mode: The autoreset mode.
        steps: How many are compared.
        act: Returns actions for the environment, its observations and a generator.
        atol: Difference allowed.
        starts: Difference allowed in the first observations of episodes.

    Returns:
        How many episodes ended, and how many of them terminated.
    """
    vector, gymnasiums = make(len(SEEDS), mode), SyncVectorEnv([single for _ in SEEDS], autoreset_mode=mode)
    assert not isinstance(vector.unwrapped, SyncVectorEnv)
    assert vector.metadata["autoreset_mode"] is mode
    for name in ("single_observation_space", "observation_space", "single_action_space"):
        assert getattr(vector, name) == getattr(gymnasiums, name)
    rng, ends, terminations = np.random.default_rng(0), 0, 0
    obs, expected = vector.reset(seed=SEEDS)[0], gymnasiums.reset(seed=SEEDS)[0]
    same(obs, expected, max(atol, starts))
    for _ in range(steps):
        action = act(vector, obs, rng)
        left, right = vector.step(action), gymnasiums.step(action)
        obs, _, terminated, truncated, infos = left
        assert vector.observation_space.contains(obs)
        same(left[1:4], right[1:4], atol)
        same(obs, right[0], max(atol, starts))
        if starts:
            going = vector.state()["steps"] > 0
            same(obs[going], right[0][going], atol)
        assert [leaf.dtype for leaf in leaves(obs)] == [leaf.dtype for leaf in leaves(right[0])]
        ended = terminated | truncated
        assert ("final_obs" in infos) == ("final_obs" in right[4])
        for i in np.flatnonzero(ended) if "final_obs" in infos else ():
            same(infos["final_obs"][i], right[4]["final_obs"][i], atol)
        ends, terminations = ends + ended.sum(), terminations + terminated.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, again = (env.reset(options={"reset_mask": ended})[0] for env in (vector, gymnasiums))
            same(obs, again, max(atol, starts))
    return ends, terminations


def depends_on_its_own_seed_only(make, steps=150):
    """`make` makes an environment of a number of copies."""

    def trace(seeds, place):
        env = make(len(seeds))
        rows = [env.reset(seed=seeds)[0][place]]
        rng, others = np.random.default_rng(2), np.random.default_rng(len(seeds))
        for _ in range(steps):
            action = at_random(env, None, others)
            action[place] = rng.integers(env.single_action_space.n)
            rows.append(env.step(action)[0][place])
        return np.array(rows)

    alone = trace([4], 0)
    np.testing.assert_array_equal(alone, trace([9, 8, 4, 7], 2))
    np.testing.assert_array_equal(alone, trace([*range(20, 38), 4], 18))


def goes_on_exactly(make, before=137, after=200):
    """An environment restored from a state of another one, and that other one put back, continue as it did."""

    def play(env, steps):
        rng, rows = np.random.default_rng(5), []
        for _ in range(steps):
            *row, _ = env.step(at_random(env, None, rng))
            rows.append(np.concatenate([np.ravel(leaf) for leaf in leaves(tuple(row))]))
            if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and (row[2] | row[3]).any():
                env.reset(options={"reset_mask": row[2] | row[3]})
        return row[0], np.array(rows)

    env, other = make(), make()
    env.reset(seed=[1, 2, 3])
    shown, _ = play(env, before)
    state = env.state()
    seen = other.restore({name: values.copy() for name, values in state.items()})
    if env.metadata["autoreset_mode"] is not AutoresetMode.DISABLED:
        same(seen, shown)
    _, expected = play(env, after)
    np.testing.assert_array_equal(play(other, after)[1], expected)
    env.restore(state)
    np.testing.assert_array_equal(play(env, after)[1], expected)
