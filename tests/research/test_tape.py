"""The draws of a recorded run are repeated, draw for draw; a tape that does not fit raises."""

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer
from replaylab.errors import ConfigError, DtypeError, EmptyBufferError, ShapeError, SnapshotError, StorageError
from replaylab.replay import Prioritized, Sequence, Uniform
from replaylab.research import Tape, TapeWriter
from replaylab.research.tape_file import PIECE, TapeReader

CAPACITY, ROWS = 40, 4


def buffer(sampler, seed=0, *, replicas=None, capacity=CAPACITY, **options):
    return ReplayBuffer(capacity, {"x": Field()}, sampler=sampler, replicas=replicas, seed=seed, **options)


def add(to, step):
    to.add(x=np.full(to.replicas, float(step)) if to.replicas else float(step))


def run(replay, draws, *, writer=None, begin=0, rows=ROWS):
    """Store and draw in turn, and return the ids."""
    drawn = []
    for step in range(begin, begin + draws):
        add(replay, step)
        batch = replay.sample(rows)
        drawn.append(batch.id)
        np.testing.assert_array_equal(batch.x, batch.id)
        if writer is not None:
            writer.append(batch.id)
        replay.update_priorities(batch.id, 1.0 + np.sin(batch.id + (replay.replicas or 0)))
    return np.stack(drawn)


@pytest.fixture
def recorded(tmp_path):
    """A tape of three replicas, and what is on it."""
    writer = TapeWriter()
    ids = run(buffer(Prioritized(beta=0.0), replicas=3), 100, writer=writer)
    writer.write(tmp_path / "one.tape")
    return str(tmp_path / "one.tape"), ids


class TestWhatIsDrawn:
    def test_the_recorded_ids(self, recorded):
        path, ids = recorded
        np.testing.assert_array_equal(run(buffer(Tape(path), 9, replicas=3), 100), ids)

    @pytest.mark.parametrize("shift", [0, 1, 2, 4])
    def test_of_another_replica(self, recorded, shift):
        path, ids = recorded
        replayed = run(buffer(Tape(path, shift), 9, replicas=3), 100)
        np.testing.assert_array_equal(replayed, np.roll(ids, -shift, axis=1))

    def test_of_a_single_buffer(self, recorded):
        path, ids = recorded
        np.testing.assert_array_equal(run(buffer(Tape(path, 1)), 100), ids[:, 1])

    def test_feedback_changes_nothing_and_weights_are_1(self, recorded):
        replay = buffer(Tape(recorded[0]), replicas=3)
        add(replay, 0)
        batch = replay.sample(ROWS)
        assert (batch.weight == 1).all()
        assert np.isnan(batch.probability).all()
        assert replay.update_priorities(batch.id, np.ones(batch.id.shape)) == 12
        with pytest.raises(ConfigError, match="the rows are those that the recorded run drew"):
            replay.probabilities(batch.id)

    def test_replays_are_counted(self, recorded):
        replay = buffer(Tape(recorded[0]), replicas=3, count_replays=True)
        ids = run(replay, 30)
        for r, counts in enumerate(replay.replay_counts()):
            np.testing.assert_array_equal(counts, np.bincount(ids[:, r].ravel(), minlength=30))

    def test_snapshots_and_parts_go_on(self, recorded, tmp_path):
        path, ids = recorded
        replay = buffer(Tape(path, 1), replicas=3)
        run(replay, 50)
        replay.save(tmp_path / "kept")
        wanted = np.roll(ids, -1, axis=1)[50:]
        part = replay.part([0, 2])
        np.testing.assert_array_equal(run(part, 50, begin=50), wanted[:, [0, 2]])
        loaded = ReplayBuffer.load(tmp_path / "kept")
        np.testing.assert_array_equal(run(loaded, 50, begin=50), wanted)

    @pytest.mark.parametrize("shift", [0, 2])
    def test_a_load_with_another_shift_draws_by_it(self, recorded, tmp_path, shift):
        path, ids = recorded
        replay = buffer(Tape(path, 1), replicas=3)
        run(replay, 50)
        replay.save(tmp_path / "kept")
        loaded = ReplayBuffer.load(tmp_path / "kept", sampler=Tape(path, shift))
        np.testing.assert_array_equal(run(loaded, 50, begin=50), np.roll(ids, -shift, axis=1)[50:])


class TestTheFile:
    def test_pieces(self, tmp_path):
        """Ids far apart, near, and in pieces that are not full, whatever is read first."""
        rng = np.random.default_rng(0)
        draws, writer = 2 * PIECE + 7, TapeWriter()
        newest = np.arange(draws)[:, None, None] + 2**40
        ids = newest - rng.integers(0, [[[200], [60_000]]], (draws, 2, 5))
        for row in ids:
            writer.append(row)
        writer.write(tmp_path / "tape")
        reader = TapeReader(tmp_path / "tape")
        assert (reader.draws, reader.replicas, reader.rows) == (draws, 2, 5)
        for k in (draws - 1, 0, PIECE, PIECE - 1, 5):
            np.testing.assert_array_equal(reader.ids(k), ids[k])
        assert (tmp_path / "tape").stat().st_size < ids.size * 2 + draws * 2 * 8 + 2_000
        assert (tmp_path / "tape").read_bytes() == writer.content()

    @pytest.mark.parametrize("draws", [0, 3, PIECE, PIECE + 2])
    def test_a_writer_goes_on_from_its_state(self, draws):
        ids = np.random.default_rng(1).integers(0, 99, (PIECE + 9, 2, 3))
        writer, first, second = TapeWriter(), TapeWriter(), TapeWriter()
        for k, row in enumerate(ids):
            writer.append(row)
            (first if k < draws else second).append(row)
            if k == draws - 1:
                second.restore(first.state())
        assert len(second) == len(writer)
        assert second.content() == writer.content()

    @pytest.mark.parametrize("draws", [3, PIECE, PIECE + 2])
    def test_joined_recordings(self, draws):
        ids = np.random.default_rng(1).integers(0, 99, (draws, 3, 4))
        ids[: draws // 2, 1:] *= 1000  # of other widths
        complete, first, second = TapeWriter(), TapeWriter(), TapeWriter()
        for row in ids:
            for writer, part in ((complete, row), (first, row[0]), (second, row[1:])):
                writer.append(part)
        first.join(second)
        assert len(first) == draws
        assert first.content() == complete.content()

    def test_recordings_that_do_not_fit_are_not_joined(self):
        tape, more, wide = TapeWriter(), TapeWriter(), TapeWriter()
        for writer, ids in ((tape, [1, 2]), (more, [1, 2]), (more, [1, 2]), (wide, [1, 2, 3])):
            writer.append(np.array(ids))
        for other, got in ((more, "1 of 2 and 2 of 2"), (wide, "1 of 2 and 1 of 3"), (TapeWriter(), "0 of None")):
            with pytest.raises(ShapeError, match=f"as many draws of as many rows, but got .*{got}"):
                tape.join(other)

    @pytest.mark.parametrize("other", ["x", None, TapeWriter])
    def test_only_writers_are_joined(self, other):
        with pytest.raises(ConfigError, match="`other` must be a TapeWriter"):
            TapeWriter().join(other)

    @pytest.mark.parametrize("broken", ["lack", "shape", "dtype", "order", "ends", "list", "none"])
    def test_an_incomplete_state_changes_nothing(self, broken):
        writer, full = TapeWriter(), TapeWriter()
        writer.append([[1, 2], [3, 4]])
        for _ in range(PIECE + 1):
            full.append([[5, 6], [7, 8]])
        full.append_ends([3, -1], [True, False])
        state, before = full.state(), writer.content()
        match broken:
            case "lack":
                del state["behind0"]
            case "shape":
                state["newest1"] = state["newest1"][:1]
            case "dtype":
                state["behind1"] = state["behind1"].astype(np.float64)
            case "order":
                state = {f"{name[:-1]}{1 - int(name[-1])}": array for name, array in state.items() if name != "ends"}
            case "ends":
                state["ends"] = state["ends"][0]
            case "list":
                state = list(state)
            case "none":
                state = None
        with pytest.raises(SnapshotError, match="`state` must be what TapeWriter"):
            writer.restore(state)
        assert writer.content() == before

    def test_nothing_on_it(self, tmp_path):
        with pytest.raises(ConfigError, match="a tape must hold at least one draw"):
            TapeWriter().write(tmp_path / "tape")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("ids", "error", "words"),
        [
            ([[1, 2], [3, 4]], ShapeError, r"of shape \(1, 2\), as the draws before"),
            ([-1, 2], ConfigError, "whole numbers from 0 on"),
            ([0.5, 2], DtypeError, "whole numbers"),
            (3, ShapeError, "shape"),
            ([[1], [1, 2]], ShapeError, "must be an array"),
        ],
    )
    def test_other_draws(self, ids, error, words):
        writer = TapeWriter()
        writer.append([1, 2])
        with pytest.raises(error, match=words):
            writer.append(ids)
        assert len(writer) == 1


class TestWhatDoesNotFit:
    def test_another_batch_size(self, recorded):
        replay = buffer(Tape(recorded[0]), replicas=3)
        add(replay, 0)
        with pytest.raises(ConfigError, match="`batch_size` must be 4, the rows of each draw on the tape"):
            replay.sample(5)

    def test_a_shorter_tape(self, recorded):
        replay = buffer(Tape(recorded[0]), replicas=3)
        run(replay, 100)
        with pytest.raises(ConfigError, match="holds 100 draws, and all were replayed; record a run that is as long"):
            run(replay, 1, begin=100)

    @pytest.mark.parametrize("capacity", [20, 400])
    def test_a_row_that_is_not_there(self, recorded, capacity):
        """It was overwritten here, or is not yet stored; the draw can be asked for again."""
        replay = buffer(Tape(recorded[0]), replicas=3, capacity=capacity)
        if capacity == 20:
            with pytest.raises(ConfigError, match=r"asks for step \d+, but the buffer holds steps \d+ to \d+\."):
                run(replay, 100)
            return
        with pytest.raises(
            ConfigError, match=r"draw 0 of the tape .* asks for step 0, but the buffer holds steps 0 to"
        ):
            replay.sample(ROWS)
        run(replay, 5)

    def test_more_replicas(self, recorded):
        with pytest.raises(ConfigError, match="must have a replica for each of the buffer's 4, but has 3"):
            buffer(Tape(recorded[0]), replicas=4)

    @pytest.mark.parametrize("shift", [3, 6])
    def test_a_shift_back_to_itself(self, recorded, shift):
        rule = rf"`shift` must lead to other replicas, so be no multiple of the 3 of .* but got {shift}; record more"
        for replicas in (2, 3):
            with pytest.raises(ConfigError, match=rule):
                buffer(Tape(recorded[0], shift), replicas=replicas)

    def test_no_tape(self, tmp_path):
        with pytest.raises(StorageError, match="there is no tape at"):
            buffer(Tape(str(tmp_path / "none")))
        (tmp_path / "text").write_text("text")
        with pytest.raises(SnapshotError, match="is not a tape that this library wrote"):
            buffer(Tape(str(tmp_path / "text")))

    def test_sequences(self, recorded):
        with pytest.raises(ConfigError, match="Sequence"):
            buffer(Tape(recorded[0]), transforms=[Sequence(4)])

    def test_ring_orders_are_needed(self):
        assert Tape("x").needs_order
        assert not Tape("x").wants_feedback
        assert Uniform() != Tape("x")


def test_the_tape_waits_for_min_size(tmp_path):
    writer = TapeWriter()
    writer.append(np.array([0, 1]))
    writer.write(tmp_path / "one.tape")
    waiting = ReplayBuffer(10, {"x": Field()}, sampler=Tape(str(tmp_path / "one.tape")), min_size=3, seed=0)
    waiting.extend(x=[1.0, 2.0])
    with pytest.raises(EmptyBufferError, match="min_size=3, but only 2 steps"):
        waiting.sample(2)
    waiting.add(x=3.0)
    assert waiting.sample(2).id.tolist() == [0, 1]
