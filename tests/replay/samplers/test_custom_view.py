"""What a sampler written in Python sees, against a plain record of everything that happened."""

from dataclasses import dataclass

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import CustomSampler, Field, Oracle, ReplayBuffer

FIELDS = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
SEEN = ("ids", "ages", "episodes", "steps_in_episode", "replay_counts", "feedback", "priorities")


@dataclass(frozen=True)
class Spy(CustomSampler):
    """Uniform; keeps what it saw in a list."""

    seen: list

    def __hash__(self):
        return 0

    def law(self, view, batch_size):
        self.seen.append({name: np.array(getattr(view, name)) for name in SEEN} | {"len": len(view)})
        return np.full(len(view), 1.0 / len(view))


@pytest.mark.parametrize("replicas", [None, 1, 3])
@pytest.mark.parametrize("num_envs", [None, 1, 4])
def test_a_view_shows_what_happened(replicas, num_envs):
    R, E, C = replicas or 1, num_envs or 1, 17
    lead = tuple(n for n in (replicas, num_envs) if n)
    spy = Spy([])
    buffer = ReplayBuffer(C, FIELDS, num_envs=num_envs, replicas=replicas, sampler=spy, seed=0)
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
        buffer.update_priorities(
            ids.reshape(*lead[: replicas is not None], 4), td_error.reshape(*lead[: replicas is not None], 4)
        )
        for r, k in np.ndindex(*ids.shape):
            steps[r][ids[r, k]]["feedback"] = abs(td_error[r, k])


def check(seen, stored, total):
    """Compare a view with the steps it should show, oldest first."""
    n = len(stored)
    assert seen["len"] == n
    np.testing.assert_array_equal(seen["ids"], np.arange(total - n, total))
    np.testing.assert_array_equal(seen["ages"], np.arange(n)[::-1])
    np.testing.assert_array_equal(seen["steps_in_episode"], [one["step"] for one in stored])
    np.testing.assert_array_equal(seen["replay_counts"], [one["count"] for one in stored])
    feedback = np.array([one["feedback"] for one in stored])
    np.testing.assert_array_equal(seen["feedback"], feedback)
    largest = max([0.0, *feedback[~np.isnan(feedback)]]) or 1.0
    np.testing.assert_array_equal(seen["priorities"], np.where(np.isnan(feedback), largest, feedback))
    numbers = {}  # the same numbers for the same episodes, in whatever numbering
    for number, one in zip(seen["episodes"].tolist(), stored, strict=True):
        assert numbers.setdefault(one["episode"], number) == number
    assert len(set(numbers.values())) == len(numbers)
    for e in {episode[0] for episode in numbers}:  # which grow
        own = [number for (env, _), number in sorted(numbers.items()) if env == e]
        assert own == sorted(own)


@dataclass(frozen=True)
class Wrong(CustomSampler):
    """Returns whatever it is told to."""

    chances: object = None
    ids: object = None

    def law(self, view, batch_size):
        return np.full(len(view), 1.0 / len(view)) if self.chances is None else self.chances

    def draw(self, view, batch_size, rng):
        return view.ids[:batch_size] if self.ids is None else np.asarray(self.ids)


class TestRefusals:
    def filled(self, sampler):
        buffer = ReplayBuffer(4, FIELDS, sampler=sampler, seed=0)
        buffer.extend(x=np.zeros(6, int), terminated=np.zeros(6, bool), truncated=np.zeros(6, bool))
        return buffer

    @pytest.mark.parametrize("chances", [[0.5, 0.5], [0.5] * 4, [1.5, -0.5, 0, 0], [np.nan] * 4])
    def test_a_law_that_is_none(self, chances):
        with pytest.raises(ConfigError, match="`law` of Wrong must return 4 chances that sum to 1, but returned "):
            self.filled(Wrong(chances=tuple(chances))).sample(2)

    @pytest.mark.parametrize("ids", [[0, 3], [3, 6], [-1], [[2, 3]], 3])
    def test_ids_that_are_not_stored(self, ids):
        with pytest.raises(ConfigError, match="`draw` of Wrong must return the ids of stored steps"):
            self.filled(Wrong(ids=ids)).sample(2)

    def test_an_empty_buffer(self):
        with pytest.raises(EmptyBufferError, match="the buffer is empty; add at least one step before sampling"):
            ReplayBuffer(4, FIELDS, sampler=Wrong()).sample(2)

    def test_an_oracle_of_too_few_steps(self):
        with pytest.raises(EmptyBufferError, match="Oracle gives `batch_size` different steps, but batch_size=5"):
            self.filled(Oracle(lambda ids: ids)).sample(5)
