"""The last steps of episodes: rows in a storage, snapshots, `Priorities`, mixtures and calls that fill the ring twice.

The oracle knows the sampling distribution (`test_transforms_against_oracle.py`), and `test_conformance.py` draws by it.
"""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.replay import EpisodeEnds, MemoryMap, Mixture, Priorities, Uniform
from tests.oracle import OracleReplica

FIELDS = {"terminated": Field((), bool), "truncated": Field((), bool)}
C = 40
SAMPLERS = [EpisodeEnds(0.5, 1), EpisodeEnds(0.5, 1, truncated=True), EpisodeEnds(0.7, 4, truncated=True)]


def given(steps, envs, seed):
    """Random flags by name, (T, E)."""
    rng = np.random.default_rng(seed)
    return {name: rng.random((steps, envs)) < share for name, share in (("terminated", 0.1), ("truncated", 0.05))}


def oracle(sampler, flags):
    replica = OracleReplica(C, sampler)
    for terminated, truncated in zip(flags["terminated"], flags["truncated"], strict=True):
        for env, ends in enumerate(zip(terminated, truncated, strict=True)):
            replica.add({("terminated",): ends[0], ("truncated",): ends[1]}, env)
    return replica


def same(buffer, replica):
    """The distribution is the oracle's, and rows are drawn by it."""
    wanted = replica.distribution(8)
    ids = np.array(list(wanted))
    np.testing.assert_allclose(buffer.probabilities(ids), list(wanted.values()), rtol=1e-12)
    return len(set(wanted.values())) > 1


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("envs", [1, 3])
def test_of_every_kind_of_replay(sampler, envs, tmp_path):
    """Rows of this process, rows in a file, seen from the writer and from elsewhere, and no rows at all."""
    flags, seen = given(90, envs, 1), 0
    shared = ReplayBuffer(C, FIELDS, num_envs=envs, sampler=sampler, storage=MemoryMap(tmp_path / "rows"), seed=0)
    elsewhere, bare = shared.handle().open(), Priorities(C, num_envs=envs, sampler=sampler, seed=0)
    replays = [ReplayBuffer(C, FIELDS, num_envs=envs, sampler=sampler, seed=0), shared, elsewhere, bare]
    for begin in range(0, 90, 15):
        steps = {name: flag[begin : begin + 15] for name, flag in flags.items()}
        for one in replays:
            if one is not elsewhere:
                one.extend(*[15] * (one is bare), **steps)
            seen += same(one, oracle(sampler, {name: flag[: begin + 15] for name, flag in flags.items()}))
    assert seen > 15


def test_one_call_fills_the_ring_twice():
    sampler, flags = EpisodeEnds(0.5, 3, truncated=True), given(95, 1, 2)
    buffer = ReplayBuffer(C, FIELDS, num_envs=1, sampler=sampler, seed=0)
    buffer.extend(**flags)
    assert same(buffer, oracle(sampler, flags))


@pytest.mark.parametrize("sampler", [*SAMPLERS, Mixture((Uniform(), SAMPLERS[1]))], ids=repr)
def test_snapshots_continue(sampler, tmp_path):
    flags = given(180, 2, 3)
    buffer = ReplayBuffer(C, FIELDS, num_envs=2, sampler=sampler, seed=0)
    buffer.extend(**{name: flag[:100] for name, flag in flags.items()})
    buffer.sample(8)
    buffer.save(tmp_path / "kept")
    again = ReplayBuffer.load(tmp_path / "kept", continue_episodes=True)
    for t in range(100, 180):
        for one in (buffer, again):
            one.add(**{name: flag[t] for name, flag in flags.items()})
        rows = [one.sample(8) for one in (buffer, again)]
        np.testing.assert_array_equal(rows[0].id, rows[1].id)
        np.testing.assert_array_equal(rows[0].probability, rows[1].probability)


def test_an_episode_that_is_cut_was_truncated():
    """By `end_episode`, and by a load that does not continue episodes; terminated ones only leave it out."""
    for truncated in (False, True):
        buffer = ReplayBuffer(C, FIELDS, sampler=EpisodeEnds(1.0, 2, truncated), seed=0)
        buffer.extend(terminated=[False] * 8, truncated=[False] * 8)
        for _ in range(2):
            buffer.end_episode()
            wanted = np.where(np.arange(8) > 5, 0.5, 0.0) if truncated else np.full(8, 1 / 8)
            np.testing.assert_allclose(buffer.probabilities(range(8)), wanted)
