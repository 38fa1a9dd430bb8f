"""Places where existing replay libraries break, numbered as in the project's list of traps.

Those about time (3, 4, 5 and 12, and more of 11) stand in `test_traps_of_time.py`, those about priorities (6 to 9, 15,
16) in `test_traps_of_priorities.py`, the one about cost (10) in `test_traps_of_cost.py`.
"""

import os
import pickle
import random
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from replaylab.replay import Field, NStep, Prioritized, ReplayBuffer
from tests.oracle import flatten
from tests.replay.traps.test_traps_of_priorities import make


def test_every_trap_has_a_test():
    here = Path(__file__).parent
    source = "".join(path.read_text() for path in sorted(here.glob("test_*.py")))
    found = {int(number) for number in re.findall(r"(?:def test_trap_|class TestTrap)(\d+)", source)}
    assert found == set(range(1, 17))


def test_trap_01_the_next_sample_does_not_overwrite_the_last_batch():
    buffer = make(1000)
    batches = [buffer.sample(32) for _ in range(50)]
    copies = [{name: np.array(value) for name, value in batch.items()} for batch in batches]
    fresh = make(1000)
    for batch, copy in zip(batches, copies, strict=True):
        again = fresh.sample(32)
        for name in copy:
            np.testing.assert_array_equal(batch[name], copy[name])
            np.testing.assert_array_equal(batch[name], again[name])


def test_trap_02_the_seed_controls_prioritized_draws():
    found = []
    for global_seed in (0, 1):
        random.seed(global_seed)
        np.random.seed(global_seed)  # noqa: NPY002 (another global state must change nothing)
        buffer = make(100)
        buffer.update_priorities(np.arange(100), np.linspace(0, 3, 100))
        found.append(np.concatenate([buffer.sample(16).id for _ in range(10)]).tolist())
    assert found[0] == found[1]


TRANSITION = {
    "reward": Field(),
    "next_obs": Field((), np.int64),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}


class TestTrap03TheTailOfAnNStepReturn:
    """Rewards 1, 2, 4, ...; step t leads to the observation 10·t + 1, an episode's first is 10·t."""

    def rows(self, ends, capacity=10, steps=3):
        transform = NStep(steps, gamma=0.5)
        buffer = ReplayBuffer(capacity, TRANSITION, transforms=[transform], seed=0)
        for t, end in enumerate(ends):
            flags = {"terminated": end == "terminated", "truncated": end == "truncated"}
            buffer.add(reward=2.0**t, next_obs=10 * t + 1, **flags)
        batch = buffer.sample(500)
        return {i: {name: batch[name][batch.id == i][0] for name in batch} for i in set(batch.id.tolist())}

    def test_trap_03_a_truncated_tail_has_its_own_next_obs_and_a_live_bootstrap(self):
        rows = self.rows(["", "", "truncated", "", ""])
        for t, reward, n in ((0, 1 + 1 + 1, 3), (1, 2 + 2, 2), (2, 4, 1)):
            assert (rows[t]["reward"], rows[t]["next_obs"], rows[t]["discount"]) == (reward, 21, 0.5**n)

    def test_trap_03_a_terminated_tail_has_none(self):
        rows = self.rows(["", "", "terminated", "", ""])
        assert [rows[t]["discount"] for t in range(3)] == [0, 0, 0]
        assert [rows[t]["next_obs"] for t in range(3)] == [21, 21, 21]

    def test_trap_03_no_tail_is_dropped(self):
        assert set(self.rows(["", "", "truncated", "", "terminated"])) == {0, 1, 2, 3, 4}

    def test_trap_03_an_episodes_first_step_stays_in_its_episode(self):
        rows = self.rows(["truncated", "truncated", "", "", ""])
        assert [(rows[t]["reward"], rows[t]["n_steps"], rows[t]["next_obs"]) for t in (0, 1)] == [(1, 1, 1), (2, 1, 11)]
        assert (rows[2]["reward"], rows[2]["n_steps"]) == (4 + 4 + 4, 3)

    def test_trap_03_the_write_head_is_not_crossed(self):
        """In a ring of four, step 6 lies before step 3 and after step 2, which is gone."""
        rows = self.rows([""] * 7, capacity=4)
        assert set(rows) == {3, 4, 5, 6}
        assert [rows[t]["n_steps"] for t in (3, 4, 5, 6)] == [3, 3, 2, 1]
        assert [rows[t]["next_obs"] for t in (3, 4, 5, 6)] == [51, 61, 61, 61]


ENDS = {name: TRANSITION[name] for name in ("next_obs", "terminated", "truncated")}


class TestTrap11Autoreset:
    """The full tests, against real environments, stand in `test_law_4_autoreset.py`."""

    def test_trap_11_next_step_the_reset_is_not_a_transition(self):
        buffer = ReplayBuffer(10, ENDS, autoreset="next_step")
        buffer.add(next_obs=1, terminated=False, truncated=True)
        assert buffer.add(next_obs=0, terminated=False, truncated=False) == -1
        assert len(buffer) == 1

    def test_trap_11_same_step_the_reset_observation_is_not_the_final_one(self):
        buffer = ReplayBuffer(10, ENDS, autoreset="same_step", num_envs=2)
        final = np.array([None, 77], object)
        ends = {"terminated": np.array([False, True]), "truncated": np.zeros(2, bool)}
        buffer.add(next_obs=np.array([5, 0]), final_obs=final, **ends)
        assert buffer.columns["next_obs"][:2].tolist() == [5, 77]


class TestTrap13Checkpoints:
    """The full tests, with kills, stand in `test_snapshot.py`."""

    def trained(self):
        buffer = make(100)
        buffer.update_priorities(np.arange(100), np.linspace(0.0, 3.0, 100) ** 2)
        buffer.sample(32)
        return buffer

    def test_trap_13_priorities_and_random_streams_are_in_them(self, tmp_path):
        buffer = self.trained()
        buffer.save(tmp_path)
        twin = ReplayBuffer.load(tmp_path)
        np.testing.assert_array_equal(twin.probabilities(np.arange(100)), buffer.probabilities(np.arange(100)))
        for _ in range(10):
            np.testing.assert_array_equal(twin.sample(32).id, buffer.sample(32).id)
        assert twin.add(x=0) == buffer.add(x=0) == 100

    def test_trap_13_they_take_no_memory_and_no_pickle(self, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise AssertionError("pickled")

        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        buffer = ReplayBuffer(10_000, {"x": Field((1000,))}, sampler=Prioritized(beta=0.4))
        buffer.extend(x=np.ones((10_000, 1000), np.float32))
        tracemalloc.start()
        buffer.save(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.05 * buffer.nbytes
        assert (ReplayBuffer.load(tmp_path).columns["x"] == 1).all()

    @pytest.mark.parametrize("call", ["replace", "fsync"])
    def test_trap_13_a_death_while_writing_leaves_the_old_one_whole(self, tmp_path, monkeypatch, call):
        class DeathError(BaseException):
            pass

        def die(*_, **__):
            raise DeathError

        buffer = self.trained()
        buffer.save(tmp_path)
        laws = ReplayBuffer.load(tmp_path).probabilities(np.arange(100))
        buffer.extend(x=np.zeros(50, np.int64))
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            patch.setattr(Path, call, die, raising=False)
            with pytest.raises(DeathError):
                buffer.save(tmp_path)
        old = ReplayBuffer.load(tmp_path)
        assert old.columns["x"].tolist() == list(range(100))
        np.testing.assert_array_equal(old.probabilities(np.arange(100)), laws)


def test_trap_14_an_update_applies_to_its_ids_whatever_was_sampled_since():
    """As a prefetching loop needs it: three batches are drawn before the first one's errors come."""
    buffer = make(100)
    first, *_ = [buffer.sample(8) for _ in range(3)]
    assert buffer.update_priorities(first.id, priority=np.full(8, 5.0)) == 8
    wanted = np.ones(100)
    wanted[first.id] = 5.0
    np.testing.assert_allclose(buffer.probabilities(np.arange(100)), wanted / wanted.sum(), rtol=1e-12)


def test_dtypes_are_kept():
    """From trap 12: uint8 stays uint8, in the store and in the batch."""
    fields = {"image": Field((4, 4), np.uint8), "flag": Field((), np.bool_), "value": Field((), np.float64)}
    buffer = ReplayBuffer(3, fields)
    buffer.add(image=np.full((4, 4), 255, np.uint8), flag=True, value=0.1)
    batch = buffer.sample(2)
    for tree in (buffer.columns, {name: batch[name] for name in fields}):
        assert {path[0]: leaf.dtype for path, leaf in flatten(tree).items()} == {
            "image": np.uint8,
            "flag": np.bool_,
            "value": np.float64,
        }
    assert batch.value[0] == 0.1
