"""Samplers written in Python: what they see, against a plain record of what happened, and their distributions."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab.errors import EmptyBufferError
from replaylab.replay import CustomSampler, Field, Oracle, ReplayBuffer
from tests.replay.buffers import FLAGS, Even, filled, refused

SEEN = ("ids", "ages", "episodes", "steps_in_episode", "replay_counts", "feedback", "priorities")


@dataclass(frozen=True)
class Spy(Even):
    """Uniform; keeps what it saw in a list."""

    seen: list

    def __hash__(self):
        return 0

    def distribution(self, view, batch_size):
        self.seen.append({name: np.array(getattr(view, name)) for name in SEEN} | {"len": len(view)})
        return super().distribution(view, batch_size)


@pytest.mark.parametrize("replicas", [None, 1, 3])
@pytest.mark.parametrize("num_envs", [None, 1, 4])
def test_a_view_shows_what_happened(replicas, num_envs):
    R, E, C = replicas or 1, num_envs or 1, 17
    lead = tuple(n for n in (replicas, num_envs) if n)
    spy = Spy([])
    fields = {"x": Field((), np.int64), **FLAGS}
    buffer = ReplayBuffer(C, fields, num_envs=num_envs, replicas=replicas, sampler=spy, seed=0)
    rng = np.random.default_rng(0)
    steps = [[] for _ in range(R)]  # of each replica, every step ever stored
    begun = [[0] * E for _ in range(R)]  # step of each environment where its episode began, as a count
    taken = [[0] * E for _ in range(R)]

    for turn in range(60):
        terminated, truncated = rng.random((2, R, E)) < 0.15
        where = rng.random((R, E)) < (0.7 if lead else 2)
        flags = {"terminated": terminated, "truncated": truncated, "where": where}
        buffer.add(x=np.zeros(lead, int), **{name: flag.reshape(lead) for name, flag in flags.items()})
        for r, e in zip(*np.nonzero(where), strict=True):
            episode = (e, begun[r][e])
            steps[r].append({"episode": episode, "step": taken[r][e] - begun[r][e], "count": 0, "feedback": np.nan})
            taken[r][e] += 1
            if terminated[r, e] or truncated[r, e]:
                begun[r][e] = taken[r][e]
        if turn % 13 == 12:
            cut = rng.random((R, E)) < 0.5
            buffer.end_episode(cut.reshape(lead))
            for r, e in zip(*np.nonzero(cut), strict=True):
                begun[r][e] = taken[r][e]
        if min(map(len, steps)) == 0:
            continue

        spy.seen.clear()
        ids = np.reshape(buffer.sample(4).id, (R, 4))
        for r in range(R):
            check(spy.seen[r], steps[r][-C:], len(steps[r]))
            for i in ids[r]:
                steps[r][i]["count"] += 1
        td_error = rng.normal(size=ids.shape) * (rng.random(ids.shape) < 0.8)
        shape = (*lead[: replicas is not None], 4)
        buffer.update_priorities(ids.reshape(shape), td_error.reshape(shape))
        for r, k in np.ndindex(*ids.shape):
            steps[r][ids[r, k]]["feedback"] = abs(td_error[r, k])


def check(seen, stored, total):
    """Compare a view with the steps it should show, oldest first."""
    n = len(stored)
    feedback = np.array([row["feedback"] for row in stored])
    largest = max([0.0, *feedback[~np.isnan(feedback)]]) or 1.0
    for name, expected in {
        "len": n,
        "ids": np.arange(total - n, total),
        "ages": np.arange(n)[::-1],
        "steps_in_episode": [row["step"] for row in stored],
        "replay_counts": [row["count"] for row in stored],
        "feedback": feedback,
        "priorities": np.where(np.isnan(feedback), largest, feedback),
    }.items():
        np.testing.assert_array_equal(seen[name], expected, err_msg=name)
    numbers = {}  # the same numbers for the same episodes, in whatever numbering
    for number, row in zip(seen["episodes"].tolist(), stored, strict=True):
        assert numbers.setdefault(row["episode"], number) == number
    assert len(set(numbers.values())) == len(numbers)
    for e in {episode[0] for episode in numbers}:  # which grow
        numbers_of_env = [number for (env, _), number in sorted(numbers.items()) if env == e]
        assert numbers_of_env == sorted(numbers_of_env)


@dataclass(frozen=True)
class Soft(CustomSampler):
    """A sampling distribution as it comes from PyTorch or JAX, in float32."""

    def distribution(self, view, batch_size):
        weights = np.exp(np.sin(view.ids)).astype(np.float32)
        return weights / weights.sum()


@pytest.mark.parametrize("count", [16, 50, 100, 333, 1_000, 10_000])
def test_a_distribution_in_float32_is_drawn_from(count):
    """Its sum is off by more than `Generator.choice` allows."""
    buffer = filled(Soft(), count)
    for _ in range(20):
        batch = buffer.sample(8)
        assert np.allclose(buffer.probabilities(batch.id, batch_size=8), batch.probability, rtol=1e-6)
    assert abs(buffer.probabilities(np.arange(count), batch_size=8).sum() - 1.0) < 1e-12


def test_more_different_steps_than_there_are():
    buffer = filled(Oracle(lambda ids: ids), 4, 6)
    assert sorted(buffer.sample(4).id) == [2, 3, 4, 5]
    refused(EmptyBufferError, "batch_size=5 and only 4 steps are stored", lambda: buffer.sample(5))


def test_dropped_steps_have_no_chance():
    buffer = filled(Even(), 4, 6)
    assert buffer.probabilities([0, 1, 2, 5], batch_size=2).tolist() == [0.0, 0.0, 0.25, 0.25]
    assert buffer.probabilities([0, 1], batch_size=2).tolist() == [0.0, 0.0]  # none of them is stored
