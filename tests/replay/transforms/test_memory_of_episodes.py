"""Records of episodes are bounded by the capacity, and counted in `nbytes`."""

import subprocess
import sys

import numpy as np
import pytest

from replaylab import _core
from replaylab.errors import OverSizeError
from replaylab.replay import EpisodeEnds, Field, FrameStack, ReplayBuffer, Sequence, Uniform
from replaylab.replay.data.fields import core_fields
from tests.replay.transforms.transform_worlds import ByAge

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
FIELDS = {"obs": Field(), **FLAGS}
PAIRS = {"obs": Field((64,)), "next_obs": Field((64,)), **FLAGS}


def bound(empty):
    """The most that the `nbytes` of an empty buffer may grow to, as the error of one that does not fit counts it."""
    config = empty._parts.config
    _, grown = _core.replica_nbytes(
        core_fields(empty._parts.layout.flat),
        config.capacity,
        config.num_envs or 1,
        config.sampler.core_config(),
        config.core_transforms,
        config.retention.core_kind,
        config.count_replays,
    )
    return empty.nbytes + grown


def give(buffer, steps, env, ends):
    """Steps of one environment alone, each ending its episode or none."""
    where = np.zeros((steps, buffer.num_envs), bool)
    where[:, env] = True
    flags = {"terminated": where & ends, "truncated": np.zeros_like(where)}
    buffer.extend(obs=np.zeros(where.shape, np.float32), **flags, where=where)


@pytest.mark.parametrize("sampler", [Uniform(), EpisodeEnds()], ids=lambda sampler: type(sampler).__name__)
def test_an_endless_episode_pins_no_others(sampler):
    """A step of environment 0 is always stored, while the episodes of environment 1 come and go."""
    buffer = ReplayBuffer(100, FIELDS, num_envs=2, transforms=[FrameStack(2)], sampler=sampler, seed=0)
    most = bound(buffer)
    held = []
    for _ in range(40):
        for _ in range(20):
            give(buffer, 1, 0, ends=False)
            give(buffer, 50, 1, ends=True)
        held.append(buffer.nbytes)
        buffer.sample(5)
    assert max(held[5:]) == min(held[5:])
    assert max(held) <= most


def test_environments_take_turns_in_filling_the_ring():
    """Each has had the whole ring to itself once; what that took is given back."""
    buffer = ReplayBuffer(1000, FIELDS, num_envs=50, transforms=[FrameStack(2)], seed=0)
    most = bound(buffer)
    for env in range(50):
        give(buffer, 1000, env, ends=False)
        buffer.sample(10)
        assert buffer.nbytes <= most
    rows = ReplayBuffer(1000, FIELDS).nbytes
    assert buffer.nbytes - rows < 32 * 1000 + 2000
    assert most - rows == 8 * 1000 + 32 * 1000 + 16 * 1000 + 4 * 8 * 50


@pytest.mark.parametrize("num_envs", [1, 2, 7])
def test_the_worst_that_may_come_is_foretold(num_envs):
    """Episodes of one step, and every step leading elsewhere."""
    for next_obs, sampler in [("stored", Uniform()), ("derived", Uniform()), ("derived", ByAge())]:
        buffer = ReplayBuffer(
            500, PAIRS, num_envs=num_envs, transforms=[Sequence(2, 1)], next_obs=next_obs, sampler=sampler, seed=0
        )
        most = bound(buffer)
        before = buffer.nbytes
        obs = np.random.default_rng(0).random((1200, num_envs, 64), np.float32)
        flags = dict.fromkeys(FLAGS, np.ones((1200, num_envs), bool))
        buffer.extend(obs=obs, next_obs=obs + 1, **flags)
        assert before < buffer.nbytes <= most
        if next_obs == "derived":
            assert buffer.nbytes > 0.9 * most
            assert buffer.nbytes > before + 500 * 64 * 4


def test_without_anything_that_grows_it_is_nbytes():
    buffer = ReplayBuffer(500, FIELDS)
    most = bound(buffer)
    buffer.extend(obs=np.zeros(900), terminated=np.ones(900, bool), truncated=np.zeros(900, bool))
    assert buffer.nbytes == most


def test_the_refusal_says_what_comes_on_top(monkeypatch):
    monkeypatch.setattr("replaylab.replay.buffer_memory.machine_memory", lambda: 2**20)
    with pytest.raises(OverSizeError, match=r"1.0 MiB; \(closing rows of `next_obs` come on top, at most 2\.\d MiB\)"):
        ReplayBuffer(10_000, PAIRS, next_obs="derived")
    with pytest.raises(OverSizeError, match=r"1.0 MiB; \(episodes come on top, at most 3\.\d MiB\)"):
        ReplayBuffer(100_000, FIELDS, transforms=[FrameStack(2)])


def test_records_of_a_custom_sampler_are_counted(monkeypatch):
    buffer, plain = (ReplayBuffer(10_000, FIELDS, sampler=sampler) for sampler in (ByAge(), Uniform()))
    assert 0 <= buffer.nbytes - plain.nbytes - 5 * 8 * 10_000 < 1000
    monkeypatch.setattr("replaylab.replay.buffer_memory.machine_memory", lambda: plain.nbytes + 10 * 10_000)
    ReplayBuffer(10_000, FIELDS)
    with pytest.raises(OverSizeError):
        ReplayBuffer(10_000, FIELDS, sampler=ByAge())


@pytest.mark.no_sanitizer
def test_what_the_process_grows_by():
    """The proof of it: a million steps through a ring of a hundred leave no trace."""
    code = """
import resource
import numpy as np
from replaylab.replay import Field, FrameStack, ReplayBuffer
fields = {"obs": Field(), "terminated": Field((), bool), "truncated": Field((), bool)}
buffer = ReplayBuffer(100, fields, num_envs=2, transforms=[FrameStack(2)], seed=0)
ends = np.tile([False, True], (50, 1))
nothing = np.zeros_like(ends)
step = {"obs": np.zeros(ends.shape, np.float32), "terminated": ends, "truncated": nothing}
for k in range(20_000):
    if k == 1000:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    buffer.extend(**step)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert grown * 1024 < 2**21
