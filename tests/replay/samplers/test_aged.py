"""`Aged` over many half-lives; its clock, window, floor, weights and copies.

`test_conformance.py` compares its draws with its probabilities, `test_transforms_against_oracle.py` these with the
oracle's.
"""

import copy
import os
import pickle

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, FieldError
from replaylab.replay import (
    LAP,
    Aged,
    Combined,
    Field,
    Geometric,
    MemoryMap,
    Mixture,
    Priorities,
    Prioritized,
    RankBased,
    ReplayBuffer,
    Sequence,
    SharedMemory,
    Uniform,
)
from replaylab.research import Permuted
from tests.replay.buffers import FLAGS, filled, refused

RAW = {"alpha": 1.0, "beta": 1.0}
CLOCKED = {"x": Field((), np.int64), "version": Field((), np.float64)}
LEAST = float(np.finfo(np.float32).tiny)


def all_probabilities(buffer):
    """Return the ids of the stored steps and their probabilities."""
    ids = np.arange(int(buffer._parts.core.counts()[1][0]))[-len(buffer) :]
    return ids, buffer.probabilities(ids)


def aged(masses, ages, half_life):
    """Return masses that halve with every half-life, in proportion, exactly enough for any age."""
    wanted = np.asarray(masses, np.longdouble) * np.exp2(-np.asarray(ages, np.longdouble) / half_life)
    return wanted / wanted.sum()


class TestManyHalfLives:
    @pytest.mark.parametrize("floor", [0.0, 0.25])
    @pytest.mark.parametrize("half_life", [0.7, 3.0, 40.0])
    @pytest.mark.parametrize("sampler", [Uniform(), Prioritized(**RAW)], ids=lambda sampler: type(sampler).__name__)
    def test_nothing_drifts(self, sampler, half_life, floor):
        """Over ten thousand half-lives, with feedback for steps of every age."""
        buffer = filled(Aged(sampler, half_life, floor), 200, 1)
        rng, priorities, steps = np.random.default_rng(0), np.ones(1), 1
        while steps < 10_000 * half_life:
            n = int(rng.integers(1, max(2, int(40 * half_life))))
            buffer.extend(x=np.zeros(n, np.int64))
            priorities = np.append(priorities, np.full(n, priorities[-199:].max()))[-200:]
            steps += n
            places = rng.integers(0, len(priorities), 5)
            values = rng.uniform(0.1, 10.0, 5).astype(np.float32)
            if isinstance(sampler, Prioritized):
                buffer.update_priorities(steps - len(priorities) + places, priority=values)
                priorities[places] = values
        ids, probability = all_probabilities(buffer)
        masses = priorities if isinstance(sampler, Prioritized) else np.ones(len(ids))
        young = aged(masses, steps - 1 - ids, half_life)
        expected = (1 - floor) * young + floor * masses / masses.sum()
        known = expected > 1e-30
        np.testing.assert_allclose(probability[known], expected[known].astype(np.float64), rtol=1e-6)
        assert (probability[~known] < 1e-29).all()
        assert probability.sum() == pytest.approx(1.0, abs=1e-12)

    def test_old_steps_fade_to_zero_one_after_another(self):
        buffer = filled(Aged(Uniform(), half_life=1.0), 1000, 1000)
        _, probability = all_probabilities(buffer)
        positive = np.flatnonzero(probability)
        assert (np.diff(positive) == 1).all()
        assert positive[-1] == 999
        assert 126 <= len(positive) <= 160
        buffer.sample(1000)

    def test_the_newest_step_has_a_mass(self):
        buffer = filled(Aged(Prioritized(**RAW), half_life=0.001), 10, 10)
        for step in range(10, 100):
            buffer.add(x=step)
            buffer.update_priorities([step], priority=[LEAST if step % 2 else 1e30])
            assert buffer.sample(3).id.tolist() == [step] * 3

    def test_a_huge_priority_fades_late(self):
        """Two hundred half-lives old and still of a mass, which stays right as the origin moves."""
        buffer = filled(Aged(Prioritized(**RAW), half_life=1.0), 400, 1)
        buffer.update_priorities([0], priority=[2.0**93])
        for age in range(1, 215):
            buffer.add(x=age)
            buffer.update_priorities([age], priority=[1.0])
            old, newest = buffer.probabilities([0, age])
            assert old / newest == pytest.approx(2.0 ** (93 - age), rel=1e-6)

    def test_a_field_may_leap(self):
        buffer = ReplayBuffer(10, CLOCKED, sampler=Aged(Uniform(), 1e-4, clock="version"), seed=0)
        for time in (-1e300, -5.0, 1e-3, 1e18, 1.7e308):
            buffer.extend(x=[0, 0], version=[time, time])
            _, probability = all_probabilities(buffer)
            assert probability[-2:].tolist() == [0.5, 0.5]

    @pytest.mark.parametrize("floor", [0.0, 0.5])
    def test_only_zeros_are_left(self, floor):
        """Where the steps with a mass have priority 0, the floor draws everything, or the call raises."""
        buffer = filled(Aged(Prioritized(**RAW), 1.0, floor), 500, 500)
        buffer.update_priorities(np.arange(100, 500), priority=np.zeros(400))
        if floor:
            np.testing.assert_allclose(buffer.probabilities(np.arange(100)), 0.01)
            assert sorted(buffer.sample(100).id.tolist()) == list(range(100))
        else:
            refused(EmptyBufferError, "half-lives (1) older than the newest ... a `floor`", lambda: buffer.sample(1))
        buffer.update_priorities(np.arange(100), priority=np.zeros(100))
        refused(EmptyBufferError, "every one of the 500 stored steps has priority 0", lambda: buffer.sample(1))


class TestTheClock:
    @pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
    def test_a_field(self, dtype):
        fields = {"x": Field((), np.int64), "version": Field((), dtype)}
        buffer = ReplayBuffer(50, fields, sampler=Aged(Prioritized(**RAW), half_life=2.0, clock="version"), seed=0)
        versions = np.sort(np.random.default_rng(0).integers(0, 20, 120)).astype(dtype)
        for part in np.split(versions, [1, 30, 119]):
            buffer.extend(x=np.zeros(len(part), np.int64), version=part)
        np.testing.assert_allclose(
            all_probabilities(buffer)[1],
            aged(np.ones(50), float(versions[-1]) - versions[-50:].astype(float), 2.0).astype(float),
            rtol=1e-6,
        )

    def test_steps_are_of_all_environments(self):
        buffer = ReplayBuffer(9, {"x": Field()}, num_envs=3, sampler=Aged(Uniform(), half_life=3.0), seed=0)
        buffer.extend(x=np.zeros((5, 3)))
        np.testing.assert_allclose(
            buffer.probabilities(np.arange(6, 15)), aged(np.ones(9), np.arange(9)[::-1], 3.0).astype(float), rtol=1e-6
        )

    @pytest.mark.parametrize(
        ("versions", "words"),
        [
            ([6.0, 5.0], "must never decrease, but got 5 after 6; nothing was stored"),
            ([4.0, 9.0], "must never decrease, but got 4 after 5; nothing was stored"),
            ([5.0, np.nan], "must be finite, but got nan"),
            ([np.inf, np.inf], "must be finite, but got inf"),
        ],
    )
    def test_it_never_decreases(self, versions, words):
        buffer = ReplayBuffer(4, CLOCKED, sampler=Aged(Uniform(), 1.0, clock="version"), seed=0)
        buffer.add(x=0, version=5.0)
        refused(
            FieldError,
            f"field `version` is the clock of Aged and {words}",
            lambda: buffer.extend(x=[1, 2], version=versions),
        )
        assert len(buffer) == 1
        buffer.extend(x=[1, 2], version=[5.0, 5.0])
        np.testing.assert_allclose(all_probabilities(buffer)[1], 1 / 3)

    def test_each_replica_has_its_own(self):
        buffer = ReplayBuffer(4, CLOCKED, replicas=2, sampler=Aged(Uniform(), 1.0, clock="version"), seed=0)
        buffer.extend(x=np.zeros((2, 2), np.int64), version=[[8.0, 9.0], [1.0, 3.0]])
        np.testing.assert_allclose(buffer.probabilities([[0, 1]] * 2), [[1 / 3, 2 / 3], [1 / 5, 4 / 5]], rtol=1e-6)
        with pytest.raises(FieldError, match="got 2 after 3"):
            buffer.add(x=[0, 0], version=[9.0, 2.0])
        buffer.add(x=[0, 0], version=[9.0, 2.0], where=[True, False])
        buffer.clear()
        buffer.add(x=[0, 0], version=[0.0, 0.0])

    @pytest.mark.parametrize(
        ("field", "words"),
        [
            (None, "`version` is not stored"),
            (Field((2,)), "`version` is Field((2,), float32)"),
            (Field((), np.uint8), "`version` is Field((), uint8)"),
            (Field((), bool), "`version` is Field((), bool)"),
        ],
    )
    def test_it_is_one_number(self, field, words):
        fields = {"x": Field()} | ({} if field is None else {"version": field})
        sampler = Aged(Uniform(), 1.0, clock="version")
        refused(ConfigError, f"`clock` of Aged must be ... {words}", lambda: ReplayBuffer(4, fields, sampler=sampler))

    def test_priorities_store_no_field(self):
        sampler = Aged(Uniform(), 1.0, clock="terminated")
        refused(ConfigError, "`terminated` is not stored", lambda: Priorities(4, sampler=sampler))

    def test_a_buffer_has_one(self):
        fields = CLOCKED | {"time": Field((), np.int64)}
        first, other = (Aged(Uniform(), 1.0, clock=name) for name in ("version", "time"))
        refused(ConfigError, "a buffer has one clock", lambda: ReplayBuffer(4, fields, sampler=Mixture((first, other))))
        both = ReplayBuffer(4, fields, sampler=Mixture((first, Aged(Uniform(), 1.0))), seed=0)
        both.extend(x=[0, 0], version=[0, 3], time=[5, 5])
        np.testing.assert_allclose(
            both.probabilities([0, 1], batch_size=2), [(1 / 9 + 1 / 3) / 2, (8 / 9 + 2 / 3) / 2], rtol=1e-6
        )


class TestTheWindow:
    @pytest.mark.parametrize("floor", [0.0, 0.3])
    def test_it_bounds_what_is_drawn(self, floor):
        buffer = filled(Aged(Prioritized(**RAW), floor=floor, window=4), 10, 3)
        for step in range(3, 30):
            buffer.add(x=step)
            ids, probability = all_probabilities(buffer)
            assert ids[probability > 0].tolist() == ids[-4:].tolist()
            buffer.update_priorities(ids, priority=np.ones(len(ids)))  # of steps outside, too
            assert ids[all_probabilities(buffer)[1] > 0].tolist() == ids[-4:].tolist()

    def test_new_steps_get_the_largest_priority_in_it(self):
        for together in (False, True):
            buffer = filled(Aged(Prioritized(**RAW), window=3), 10, 4)
            buffer.update_priorities([0, 1, 2, 3], priority=[100.0, 9.0, 8.0, 4.0])
            if together:
                buffer.extend(x=[4, 5])
            else:
                buffer.add(x=4)  # 1 leaves the window
                buffer.add(x=5)
            np.testing.assert_allclose(buffer.probabilities(np.arange(6)), np.array([0, 0, 0, 4, 8, 8]) / 20)

    @pytest.mark.parametrize("largest", [6, 7, 8, 19])
    @pytest.mark.parametrize("steps", [2, 19, 50])
    def test_many_steps_at_once_are_as_one_by_one(self, steps, largest):
        once, one_by_one = (filled(Aged(Prioritized(**RAW), 5.0, window=13, floor=0.1), 20, 20) for _ in range(2))
        priorities = np.random.default_rng(0).random(20)
        priorities[largest] = 9.0
        for buffer in (once, one_by_one):
            buffer.update_priorities(np.arange(20), priority=priorities)
        once.extend(x=np.arange(steps))
        for step in range(steps):
            one_by_one.add(x=step)
        np.testing.assert_allclose(all_probabilities(once)[1], all_probabilities(one_by_one)[1], rtol=1e-6)


class TestWeights:
    @pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
    @pytest.mark.parametrize("floor", [0.0, 0.01, 0.5])
    def test_they_follow_from_the_final_probability(self, floor, normalize):
        rng = np.random.default_rng(3)
        for capacity, half_life in ((5, 1.0), (700, 90.0), (700, 4e3), (700, 30.0)):
            sampler = Aged(Prioritized(alpha=0.7, beta=0.6, normalize=normalize), half_life, floor)
            buffer = filled(sampler, capacity, capacity + capacity // 3)
            for _ in range(20):
                ids, probability = all_probabilities(buffer)
                batch = buffer.sample(16)
                weight = (len(buffer) * batch.probability) ** -0.6
                if normalize == "buffer":
                    weight /= (len(buffer) * probability[probability > 0].min()) ** -0.6
                if normalize == "batch":
                    weight /= weight.max()
                np.testing.assert_allclose(batch.weight, weight, rtol=1e-6)
                fed = rng.choice(ids, capacity)
                buffer.update_priorities(fed, priority=np.exp(rng.normal(size=capacity) * 4))
                buffer.extend(x=np.zeros(int(rng.integers(0, 9)), np.int64))

    def test_of_sequences(self):
        fields = {"x": Field((), np.int64), **FLAGS}
        sampler = Aged(Prioritized(alpha=1.0, beta=1.0), half_life=0.5, window=30)
        buffer = ReplayBuffer(64, fields, num_envs=2, sampler=sampler, transforms=[Sequence(4, 0, 0)], seed=0)
        rng = np.random.default_rng(0)
        for step in range(100):  # two hundred half-lives, between which the origin moves
            buffer.add(x=[step, step], terminated=rng.random(2) < 0.1, truncated=[False, False])
            batch = buffer.sample(5)
            stored = np.arange(2 * step + 2)[-len(buffer) :]
            chance = buffer.probabilities(stored)
            chance = chance[chance > 0]
            np.testing.assert_allclose(batch.weight, chance.min() / batch.probability, rtol=1e-5)
            buffer.update_priorities(batch.id, priority=rng.uniform(0.1, 3.0, 5))


class TestCopies:
    SAMPLERS = (
        Aged(Prioritized(**RAW), 3.0, floor=0.1, window=40),
        Aged(Prioritized(beta=0.5), 0.3, clock="version"),
        Aged(Uniform(), 2.0, clock="version"),
    )

    def used(self, sampler, **options):
        buffer = ReplayBuffer(50, CLOCKED, sampler=sampler, seed=0, **options)
        rng = np.random.default_rng(0)
        for version in range(40):
            buffer.extend(x=np.zeros(5, np.int64), version=np.full(5, version / 2))
            batch = buffer.sample(6)
            buffer.update_priorities(batch.id, rng.random(6))
        return buffer

    def same(self, buffer, other):
        for version in range(100, 160):
            mine, its = (each.sample(6) for each in (buffer, other))
            for name in ("id", "probability", "weight"):
                np.testing.assert_array_equal(mine[name], its[name])
            for each in (buffer, other):
                each.update_priorities(mine.id, np.linspace(0, 1, 6))
                each.add(x=0, version=version)

    @pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
    @pytest.mark.parametrize("way", ["deepcopy", "pickle", "snapshot", "restore"])
    def test_it_continues_exactly(self, sampler, way, tmp_path):
        buffer = self.used(sampler)
        if way == "deepcopy":
            other = copy.deepcopy(buffer)
        elif way == "pickle":
            other = pickle.loads(pickle.dumps(buffer))
        elif way == "snapshot":
            buffer.save(tmp_path)
            other = ReplayBuffer.load(tmp_path)
        else:
            buffer.save(tmp_path)
            other = self.used(sampler)
            other.restore(tmp_path)
        assert other.sampler == sampler
        self.same(buffer, other)
        with pytest.raises(FieldError) if sampler.clock_fields else pytest.MonkeyPatch.context():
            other.add(x=0, version=3)

    def test_priorities_can_be_aged_later(self, tmp_path):
        """A snapshot of `Prioritized` has what `Aged` needs."""
        buffer = self.used(Prioritized(**RAW))
        buffer.save(tmp_path)
        ids, plain = all_probabilities(buffer)
        later = ReplayBuffer.load(tmp_path, sampler=Aged(Prioritized(**RAW), 5.0, clock="version"))
        versions = buffer.get(ids)["version"]
        np.testing.assert_allclose(
            later.probabilities(ids), aged(plain, versions[-1] - versions, 5.0).astype(float), rtol=1e-6
        )

    def test_a_part_and_a_smaller_window(self, tmp_path):
        buffer = filled(Aged(Prioritized(**RAW), 4.0), 20, 30, replicas=3)
        part = buffer.part([2])
        np.testing.assert_array_equal(
            part.probabilities([np.arange(10, 30)]), buffer.probabilities([np.arange(10, 30)] * 3)[2:]
        )
        buffer.save(tmp_path)
        narrow = ReplayBuffer.load(tmp_path, sampler=Aged(Prioritized(**RAW), 4.0, window=6))
        assert (narrow.probabilities([np.arange(10, 30)] * 3)[:, :-6] == 0).all()

    def test_rows_in_a_file_are_read_again(self, tmp_path):
        sampler = Aged(Uniform(), 3.0, clock="version")
        buffer = self.used(sampler, storage=MemoryMap(tmp_path / "rows"))
        ids, probability = all_probabilities(buffer)
        buffer.close()
        again = ReplayBuffer(50, CLOCKED, sampler=sampler, storage=MemoryMap(tmp_path / "rows"), seed=0)
        np.testing.assert_allclose(again.probabilities(ids), probability, rtol=1e-6)

    def test_steps_of_other_processes(self):
        """A writer that is behind may add; what it adds counts as equally late as the steps before."""
        storage = SharedMemory(f"replaylab-aged-{os.getpid()}", writers=2)
        buffer = ReplayBuffer(50, CLOCKED, sampler=Aged(Uniform(), 1.0, clock="version"), storage=storage, seed=0)
        other = buffer.handle().open()
        try:
            buffer.extend(x=[0, 0], version=[4.0, 6.0])
            other.extend(x=[0, 0], version=[5.0, 7.0])
            for each in (buffer, other):
                np.testing.assert_allclose(each.probabilities(range(4)), np.array([1, 4, 4, 8]) / 17, rtol=1e-6)
            with pytest.raises(FieldError, match=r"got 6\.5 after 7"):
                other.add(x=0, version=6.5)
        finally:
            other.close()
            buffer.close()
            storage.unlink()


@pytest.mark.parametrize(
    "sampler",
    [RankBased(), Combined(), Geometric(), LAP(), Permuted(), Uniform(replace=False), Prioritized(replace=False),
     Prioritized(block_length=2), Aged(Uniform(), 1.0), "uniform", Uniform],
    ids=repr,
)  # fmt: skip
def test_other_samplers_are_refused(sampler):
    refused(ConfigError, "`sampler` of Aged must be Uniform() or Prioritized()", lambda: Aged(sampler, 5.0))


def test_it_needs_a_half_life_or_a_window():
    refused(ConfigError, "`half_life` or `window` of Aged must be given", lambda: Aged(Uniform()))


def test_a_floor_of_priorities_excludes_sequences():
    fields = {"x": Field(), **FLAGS}
    sampler = Aged(Prioritized(), 5.0, floor=0.1)
    with pytest.raises(ConfigError, match="Sequence"):
        ReplayBuffer(9, fields, sampler=sampler, transforms=[Sequence(4, 0, 0)])
    ReplayBuffer(9, fields, sampler=Aged(Uniform(), 5.0, floor=0.1), transforms=[Sequence(4, 0, 0)])


def test_uniform_ageing_is_geometric():
    ids = np.arange(30, 50)
    geometric = filled(Geometric(expected_age=4.0), 20, 50).probabilities(ids)
    half_life = -1 / np.log2(1 - 1 / 5)
    np.testing.assert_allclose(filled(Aged(Uniform(), half_life), 20, 50).probabilities(ids), geometric, rtol=1e-6)


def test_memory_is_stated():
    for floor in (0.0, 0.1):
        plain, old = (filled(sampler, 4096) for sampler in (Prioritized(), Aged(Prioritized(), 9.0, floor)))
        assert 4 * 4096 < old.nbytes - plain.nbytes < 6.2 * 4096
