"""Draws by the bins of a tape's rows: against a slow oracle, and the χ² of draws within bins (`chi2.py`)."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.errors import ConfigError, ShapeError
from replaylab.replay import Prioritized, Uniform
from replaylab.research import ByStepsToEnd, TapeWriter
from tests.replay.guarantees.chi2 import assert_distribution

FIELDS = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
CAPACITY, ROWS, STEPS = 60, 8, 130
RUNNING, TRUNCATED, TERMINATED = "running", "truncated", "terminated"


def make(sampler, replicas=None, seed=0, capacity=CAPACITY, **options):
    return ReplayBuffer(capacity, FIELDS, sampler=sampler, replicas=replicas, seed=seed, **options)


def worlds(replicas, steps, seed):
    """Ends of episodes, random ones: kinds (steps, R), "" where none ended."""
    rng = np.random.default_rng(seed)
    return rng.choice(["", TRUNCATED, TERMINATED], (steps, replicas), p=[0.88, 0.04, 0.08])


def add(buffer, step, kinds):
    lead = () if buffer.replicas is None else (buffer.replicas,)
    flags = {name: np.reshape(kinds == name, lead) for name in (TERMINATED, TRUNCATED)}
    return buffer.add(x=np.full(lead, step), **flags)


def record(path, ends, begin=5, sampler=None):
    """Store and draw by priorities, record that, and return the ids (draws, R, B)."""
    steps, replicas = ends.shape
    buffer, writer, drawn = make(sampler or Prioritized(beta=0.0), replicas), TapeWriter(), []
    for step in range(steps):
        ids = add(buffer, step, ends[step])
        writer.append_ends(np.where(ends[step] == "", -1, ids), ends[step] == TERMINATED)
        if step < begin:
            continue
        batch = buffer.sample(ROWS)
        writer.append(batch.id)
        drawn.append(batch.id)
        buffer.update_priorities(batch.id, np.exp(np.sin(batch.id * 1.0)))
    writer.write(path)
    return np.stack(drawn)


def bin_of(step, newest, ends):
    """Kind, magnitude of the steps to the end and magnitude of the age, by looking ahead one step after the other."""
    age = (newest - step).bit_length()
    for later in range(step, newest + 1):
        if ends[later]:
            return str(ends[later]), (later - step).bit_length(), age
    return RUNNING, None, age


def nearest(wanted, bins):
    """The bin of those that are there which a row of an empty bin comes from."""

    def cost(bin_):
        distances = [age if distance is None else distance for _, distance, age in (wanted, bin_)]
        apart = abs(distances[0] - distances[1])
        return (wanted[0] != bin_[0], apart + abs(wanted[2] - bin_[2]), apart, bin_[2], bin_[0] == TERMINATED)

    return min(bins, key=cost)


def far(bin_, other):
    """Whether two bins are of different kinds, or more than one apart in steps to the end or age."""
    return bin_[0] != other[0] or any(abs((a or 0) - (b or 0)) > 1 for a, b in zip(bin_[1:], other[1:], strict=True))


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_of_the_bin_of_the_recorded_one(tmp_path, replicas, seed):
    """Or of the nearest that holds a step; with the probability of an even draw from it; also as the ring wraps."""
    others, mine = worlds(replicas + 1, STEPS, seed), worlds(replicas, STEPS, seed + 100)
    recorded = record(tmp_path / "tape", others)
    buffer, moved = make(ByStepsToEnd(str(tmp_path / "tape"), shift=1), replicas, seed), np.zeros(replicas, int)
    assert np.isnan(buffer.stats().moved_share).all()
    for step in range(STEPS):
        add(buffer, step, mine[step])
        if step < 5:
            continue
        batch = buffer.sample(ROWS)
        for r in range(replicas):
            bins = {}
            for i in range(max(0, step + 1 - CAPACITY), step + 1):
                bins.setdefault(bin_of(i, step, mine[:, r]), []).append(i)
            wanted = [bin_of(i, step, others[:, (r + 1) % (replicas + 1)]) for i in recorded[step - 5, r + 1].tolist()]
            asked, recorded_bins = recorded[step - 5, r + 1].tolist(), wanted
            wanted = [bin_ if bin_ in bins else nearest(bin_, bins) for bin_ in recorded_bins]
            moved[r] += sum(map(far, recorded_bins, wanted))
            drawn = [bin_of(i, step, mine[:, r]) for i in batch.id[r].tolist()]
            assert drawn == wanted
            for bin_ in set(wanted):  # as many different steps as there, if there are so many
                pairs = {(a, i) for a, i, w in zip(asked, batch.id[r].tolist(), wanted, strict=True) if w == bin_}
                assert len(pairs) == len({a for a, _ in pairs})
                assert len({i for _, i in pairs}) == len(pairs) or len(pairs) > len(bins[bin_])
            chances = [wanted.count(bin_) / len(bins[bin_]) / ROWS for bin_ in wanted]
            np.testing.assert_allclose(batch.probability[r], chances, rtol=1e-12)
        np.testing.assert_array_equal(batch.x, batch.id)
        assert (batch.weight == 1).all()
    assert moved.min() > 0
    np.testing.assert_allclose(buffer.stats().moved_share, moved / ((STEPS - 5) * ROWS))
    assert make(Uniform()).stats().moved_share is None


def test_within_a_bin_every_step_is_alike(tmp_path):
    """The same recorded rows again and again: a running one, an end, one before an end, and one of an empty bin."""
    writer, ends = TapeWriter(), np.array([""] * 60, object)
    ends[[9, 19, 29, 39]] = TERMINATED
    for last in np.flatnonzero(ends):
        writer.append_ends([last], [True])
    rows = [59, 39, 26, 0]
    for _ in range(1_500):
        writer.append(rows)
    writer.write(tmp_path / "tape")
    buffer, mine = make(ByStepsToEnd(str(tmp_path / "tape"))), np.array([""] * 60, object)
    mine[4:45:5] = TERMINATED
    buffer.extend(x=range(60), terminated=mine == TERMINATED, truncated=[False] * 60)
    bins = [bin_of(i, 59, mine) for i in range(60)]
    drawn = np.stack([buffer.sample(4).id for _ in range(1_500)])
    for k, row in enumerate(rows):
        wanted = bin_of(row, 59, ends)
        wanted = wanted if wanted in bins else nearest(wanted, set(bins))
        chance = np.array([bin_ == wanted for bin_ in bins]) / bins.count(wanted)
        assert_distribution(np.bincount(drawn[:, k], minlength=60), chance)
    assert buffer.stats().moved_share == 0  # the empty bin has a neighbour with steps


def continued(buffer, ends, begin):
    drawn = []
    for step in range(begin, len(ends)):
        add(buffer, step, ends[step])
        drawn.append(buffer.sample(ROWS).id)
    return np.stack(drawn)


class TestTheSameDraws:
    @pytest.fixture
    def tape(self, tmp_path):
        record(tmp_path / "tape", worlds(3, STEPS, 7))
        return ByStepsToEnd(str(tmp_path / "tape"), 1)

    def test_replicas_are_single_buffers(self, tape):
        ends = worlds(3, STEPS, 8)
        alone = [make(tape.of_replica(r, 3), seed=seed) for r, seed in enumerate((4, 9, 2))]
        drawn = []
        for r, buffer in enumerate(alone):
            for step in range(5):
                add(buffer, step, ends[step, r])
            drawn.append(continued(buffer, ends[:, r], 5))
        together = make(tape, 3, [4, 9, 2])
        for step in range(5):
            add(together, step, ends[step])
        np.testing.assert_array_equal(continued(together, ends, 5), np.stack(drawn, axis=1))

    def test_snapshots_and_parts_continue(self, tape, tmp_path):
        ends = worlds(3, STEPS, 8)
        buffer, half = make(tape, 3), make(tape, 3)
        for each in (buffer, half):
            for step in range(5):
                add(each, step, ends[step])
        wanted = continued(buffer, ends, 5)
        continued(half, ends[:100], 5)
        half.save(tmp_path / "kept")
        part = half.part([0, 2])
        np.testing.assert_array_equal(continued(part, ends[:, [0, 2]], 100), wanted[95:][:, [0, 2]])
        loaded = ReplayBuffer.load(tmp_path / "kept", continue_episodes=True)
        np.testing.assert_array_equal(continued(loaded, ends, 100), wanted[95:])
        np.testing.assert_array_equal(loaded.stats().moved_share, buffer.stats().moved_share)

    def test_an_episode_that_is_cut_was_truncated(self, tmp_path):
        """Also steps stored by one call, more than there is room for."""
        record(tmp_path / "tape", worlds(3, 200, 7), begin=100)
        tape = ByStepsToEnd(str(tmp_path / "tape"), 1)
        flags, ends = np.zeros((200, 3), bool), np.full((200, 3), "", object)
        flags[::7], ends[::7] = True, TERMINATED
        buffer, other = make(tape, 3, 1), make(tape, 3, 1)
        steps = np.arange(100)
        buffer.extend(x=np.tile(steps, (3, 1)), terminated=flags[:100].T, truncated=np.zeros((3, 100), bool))
        buffer.end_episode()
        buffer.end_episode()
        ends[99] = TRUNCATED
        for step in steps:
            add(other, step, ends[step])
        for step in range(100, 120):
            add(buffer, step, ends[step])
            add(other, step, ends[step])
            np.testing.assert_array_equal(buffer.sample(ROWS).id, other.sample(ROWS).id)


class TestWhatDoesNotFit:
    def test_a_tape_without_ends(self, tmp_path):
        writer = TapeWriter()
        writer.append([0])
        writer.write(tmp_path / "tape")
        with pytest.raises(ConfigError, match="must hold the ends of episodes, but has none; record it with TapeReco"):
            make(ByStepsToEnd(str(tmp_path / "tape")))

    def test_several_environments(self, tmp_path):
        record(tmp_path / "tape", worlds(1, 20, 0))
        with pytest.raises(ConfigError, match="needs a buffer of one environment, but got num_envs=2; make the envir"):
            make(ByStepsToEnd(str(tmp_path / "tape")), num_envs=2)

    def test_ends_of_other_replicas(self):
        writer = TapeWriter()
        writer.append_ends([3, -1], [True, False])
        with pytest.raises(ShapeError, match=r"must be of shape \(2,\), one for each replica, but got \(1,\)"):
            writer.append_ends([3], [True])

    def test_the_distribution(self, tmp_path):
        record(tmp_path / "tape", worlds(1, 20, 0))
        buffer = make(ByStepsToEnd(str(tmp_path / "tape")))
        with pytest.raises(ConfigError, match="it changes with every draw of the tape"):
            buffer.probabilities([0])


def test_a_writer_continues_from_its_state_and_joins():
    """With ends of episodes, as many as there are."""
    complete, first, second, other = (TapeWriter() for _ in range(4))
    for writer in (complete, first, other):
        writer.append([[1, 2], [3, 4]] if writer is complete else [1, 2] if writer is first else [3, 4])
    complete.append_ends([5, -1], [True, False])
    complete.append_ends([9, 8], [False, True])
    first.append_ends([5], [True])
    other.append_ends([8], [True])
    second.restore(first.state())
    second.append_ends([9], [False])
    second.join(other)
    assert second.content() == complete.content()
