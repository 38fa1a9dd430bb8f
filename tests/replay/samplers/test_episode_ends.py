"""The last steps of episodes: rows in a storage, snapshots, `Priorities`, mixtures and calls that fill the ring twice.

The oracle knows the sampling distribution (`test_transforms_against_oracle.py`), and `test_conformance.py` draws by it.
"""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.errors import FieldError, SnapshotError
from replaylab.replay import EpisodeEnds, MemoryMap, Mixture, Priorities, Uniform
from replaylab.research import ByStepsToEnd, TapeWriter
from tests.oracle import OracleReplica

FIELDS = {"terminated": Field((), bool), "truncated": Field((), bool)}
C = 40
SAMPLERS = [EpisodeEnds(0.5, 1), EpisodeEnds(0.5, 1, truncated=True), EpisodeEnds(0.7, 4, truncated=True)]


def random_steps(steps, envs, seed):
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
    flags, seen = random_steps(90, envs, 1), 0
    shared = ReplayBuffer(C, FIELDS, num_envs=envs, sampler=sampler, storage=MemoryMap(tmp_path / "rows"), seed=0)
    elsewhere, bare = shared.handle().open(), Priorities(C, num_envs=envs, sampler=sampler, seed=0)
    replays = [ReplayBuffer(C, FIELDS, num_envs=envs, sampler=sampler, seed=0), shared, elsewhere, bare]
    for begin in range(0, 90, 15):
        steps = {name: flag[begin : begin + 15] for name, flag in flags.items()}
        for replay in replays:
            if replay is not elsewhere:
                replay.extend(*[15] * (replay is bare), **steps)
            seen += same(replay, oracle(sampler, {name: flag[: begin + 15] for name, flag in flags.items()}))
    assert seen > 15


def test_one_call_fills_the_ring_twice():
    sampler, flags = EpisodeEnds(0.5, 3, truncated=True), random_steps(95, 1, 2)
    buffer = ReplayBuffer(C, FIELDS, num_envs=1, sampler=sampler, seed=0)
    buffer.extend(**flags)
    assert same(buffer, oracle(sampler, flags))


@pytest.mark.parametrize("sampler", [*SAMPLERS, Mixture((Uniform(), SAMPLERS[1]))], ids=repr)
def test_snapshots_continue(sampler, tmp_path):
    flags = random_steps(180, 2, 3)
    buffer = ReplayBuffer(C, FIELDS, num_envs=2, sampler=sampler, seed=0)
    buffer.extend(**{name: flag[:100] for name, flag in flags.items()})
    buffer.sample(8)
    buffer.save(tmp_path / "kept")
    again = ReplayBuffer.load(tmp_path / "kept", continue_episodes=True)
    for t in range(100, 180):
        for each in (buffer, again):
            each.add(**{name: flag[t] for name, flag in flags.items()})
        rows = [each.sample(8) for each in (buffer, again)]
        np.testing.assert_array_equal(rows[0].id, rows[1].id)
        np.testing.assert_array_equal(rows[0].probability, rows[1].probability)


OTHERS = [EpisodeEnds(0.5, 2), EpisodeEnds(0.5, 1, truncated=True), EpisodeEnds(0.7, 3, truncated=True)]


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize("saved", SAMPLERS, ids=repr)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_load_with_other_options_draws_by_these(saved, other, envs, in_file, tmp_path):
    flags, storage = random_steps(130, envs, 4), MemoryMap(tmp_path / "rows") if in_file else None
    buffer = ReplayBuffer(C, FIELDS, num_envs=envs, sampler=saved, storage=storage, seed=0)
    buffer.extend(**{name: flag[:100] for name, flag in flags.items()})
    buffer.save(tmp_path / "kept")
    loaded = ReplayBuffer.load(tmp_path / "kept", sampler=other, continue_episodes=True)
    assert same(loaded, oracle(other, {name: flag[:100] for name, flag in flags.items()}))
    mixed = ReplayBuffer.load(tmp_path / "kept", sampler=saved, continue_episodes=True)
    assert same(mixed, oracle(saved, {name: flag[:100] for name, flag in flags.items()}))
    if in_file:  # whose open episodes a load ends
        return
    loaded.extend(**{name: flag[100:] for name, flag in flags.items()})
    assert same(loaded, oracle(other, flags))


def test_a_mixture_loads_with_other_options(tmp_path):
    flags = random_steps(100, 2, 5)
    buffer, wanted = (
        ReplayBuffer(C, FIELDS, num_envs=2, sampler=Mixture((Uniform(), sampler)), seed=0)
        for sampler in (SAMPLERS[0], SAMPLERS[2])
    )
    for each in (buffer, wanted):
        each.extend(**flags)
    buffer.save(tmp_path)
    loaded, ids = ReplayBuffer.load(tmp_path, sampler=wanted.sampler, continue_episodes=True), buffer.stored_ids()[0]
    expected = wanted.probabilities(ids, batch_size=8)
    np.testing.assert_allclose(loaded.probabilities(ids, batch_size=8), expected, rtol=1e-12)
    assert (expected != buffer.probabilities(ids, batch_size=8)).any()


def test_an_open_episode_is_not_counted_by_a_load(tmp_path):
    buffer = ReplayBuffer(C, FIELDS, sampler=SAMPLERS[0], seed=0)
    buffer.extend(terminated=[False, True, False], truncated=[False] * 3)
    buffer.save(tmp_path)
    options = {"sampler": EpisodeEnds(1.0, 2, truncated=True)}
    loaded = ReplayBuffer.load(tmp_path, continue_episodes=True, **options)
    assert loaded.probabilities(range(3)).tolist() == [0.5, 0.5, 0.0]
    ended = ReplayBuffer.load(tmp_path, continue_episodes=False, **options)
    np.testing.assert_allclose(ended.probabilities(range(3)), 1 / 3)


def test_priorities_without_flags_load_with_another_share_only(tmp_path):
    """`Priorities` store no flags, so they do not know which episodes terminated."""
    priorities = Priorities(C, sampler=EpisodeEnds(0.5), seed=0)
    priorities.extend(10, terminated=np.arange(10) % 4 == 3)
    priorities.save(tmp_path)
    loaded = Priorities.load(tmp_path, sampler=EpisodeEnds(0.3))
    np.testing.assert_allclose(loaded.probabilities([2, 3]), [0.07, 0.22])
    for other in (EpisodeEnds(0.5, 2), EpisodeEnds(0.5, truncated=True)):
        with pytest.raises(SnapshotError, match="which episodes terminated"):
            Priorities.load(tmp_path, sampler=other)


def test_snapshots_of_earlier_versions_keep_their_order():
    """They lack the options: the steps are found again, and if they are the same, draws continue exactly."""
    flags = random_steps(150, 2, 6)
    buffer, again, other = (
        ReplayBuffer(C, FIELDS, num_envs=2, sampler=sampler, seed=0)
        for sampler in (SAMPLERS[2], SAMPLERS[2], SAMPLERS[0])
    )
    buffer.extend(**flags)
    state = {name: array for name, array in buffer._parts.core.state().items() if not name.endswith("sampler.options")}
    for each in (again, other):
        each._parts.core.bytes(0)[...] = buffer._parts.core.bytes(0)
        each._parts.core.restore(dict(state))
    assert ids(again) == ids(buffer)
    assert same(other, oracle(SAMPLERS[0], flags))


def ids(buffer):
    return [buffer.sample(16).id.tolist() for _ in range(5)]


class TestWithoutFlags:
    """Neither sampler may draw uniformly because nothing tells it where episodes end."""

    @pytest.mark.parametrize(
        ("sampler", "fields"),
        [
            (EpisodeEnds(1.0), {"x": Field()}),
            (EpisodeEnds(1.0, truncated=True), {"x": Field()}),
            (EpisodeEnds(1.0), {"truncated": FIELDS["truncated"]}),
            (Mixture((Uniform(), EpisodeEnds(0.5, truncated=True))), {"x": Field()}),
            (Mixture((EpisodeEnds(0.5), EpisodeEnds(0.5, truncated=True))), {"truncated": FIELDS["truncated"]}),
        ],
    )
    def test_a_buffer_is_refused(self, sampler, fields):
        with pytest.raises(FieldError, match="must know where episodes end"):
            ReplayBuffer(9, fields, sampler=sampler)

    def test_by_steps_to_end_is_refused(self, tmp_path):
        writer = TapeWriter()
        writer.append([1, 1])
        writer.append_ends([2], [True])
        writer.write(tmp_path / "tape")
        with pytest.raises(FieldError, match="must know where episodes end"):
            ReplayBuffer(9, {"x": Field()}, sampler=ByStepsToEnd(str(tmp_path / "tape")))
        ReplayBuffer(9, {"x": Field()}, sampler=ByStepsToEnd(str(tmp_path / "tape")), episodes="manual")

    def test_manual_episodes_are_truncated_ones(self):
        buffer = ReplayBuffer(9, {"x": Field()}, sampler=EpisodeEnds(1.0, truncated=True), episodes="manual")
        buffer.extend(x=range(4))
        buffer.end_episode()
        assert buffer.probabilities(range(4)).tolist() == [0.0, 0.0, 0.0, 1.0]
        with pytest.raises(FieldError, match="truncated=True"):
            ReplayBuffer(9, {"x": Field()}, sampler=EpisodeEnds(1.0), episodes="manual")


def test_an_episode_that_is_cut_was_truncated():
    """By `end_episode`, and by a load that does not continue episodes; terminated ones only leave it out."""
    for truncated in (False, True):
        buffer = ReplayBuffer(C, FIELDS, sampler=EpisodeEnds(1.0, 2, truncated), seed=0)
        buffer.extend(terminated=[False] * 8, truncated=[False] * 8)
        for _ in range(2):
            buffer.end_episode()
            wanted = np.where(np.arange(8) > 5, 0.5, 0.0) if truncated else np.full(8, 1 / 8)
            np.testing.assert_allclose(buffer.probabilities(range(8)), wanted)
