"""Saving while batches are drawn ahead: the resumed run receives what the uninterrupted one does, batch for batch."""

import copy
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from replaylab import Field, ReplayBuffer, replay, research
from replaylab.errors import EmptyBufferError, SnapshotError
from tests.same import same

FIELDS = {"x": Field((), np.int64), "y": Field((2,)), "terminated": Field((), bool), "truncated": Field((), bool)}


@dataclass(frozen=True)
class Fed(replay.CustomSampler):
    """In proportion to the last feedback, and one for each time that a step was drawn."""

    def distribution(self, view, batch_size):
        weight = 1.0 + np.nan_to_num(view.feedback) + view.replay_counts
        return weight / weight.sum()


def tape_in(folder, steps, draws=60, rows=8):
    writer = research.TapeWriter()
    rng = np.random.default_rng(5)
    for k in range(draws):
        writer.append(rng.integers(0, steps + max(0, k - 5), rows))
    writer.write(folder / "drawn.tape")
    return research.Tape(str(folder / "drawn.tape"))


SAMPLERS = {
    "uniform": lambda _: replay.Uniform(),
    "prioritized": lambda _: replay.Prioritized(beta=0.4),
    "queue": lambda _: replay.Queue(),
    "epochs": lambda _: replay.ShuffledEpochs(),
    "mixture": lambda _: replay.Mixture((replay.Prioritized(beta=0.4), replay.ShuffledEpochs())),
    "custom": lambda _: Fed(),
    "laber": lambda _: replay.LaBER(lambda pool: 1.0 + pool.x % 5),
    "tape": lambda folder: tape_in(folder, 500),
}
GIVEN = {"custom", "laber"}  # a snapshot does not hold them


def steps(start, count):
    x = np.arange(start, start + count)
    return {"x": x, "y": np.ones((count, 2)), "terminated": x % 10 == 9, "truncated": np.zeros(count, bool)}


def make(sampler, **options):
    buffer = ReplayBuffer(1000, FIELDS, **{"sampler": sampler, "seed": 3} | options)
    buffer.extend(**steps(0, 500))
    return buffer


def learn(buffer, batches, begin, turns):
    """Take batches, feed back and add; return all that came."""
    seen = []
    for turn in range(begin, begin + turns):
        batch = next(batches)
        seen.append({name: np.array(column) for name, column in batch.items()})
        buffer.update_priorities(batch.id, np.abs(np.sin(batch.id + turn)))
        buffer.add(**{name: value[0] for name, value in steps(500 + turn, 1).items()})
    return tuple(seen)


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("way", ["load", "restore", "deepcopy"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_resumed_run_equals_the_uninterrupted_one(tmp_path, name, way, ahead):
    sampler = SAMPLERS[name](tmp_path)
    buffer = make(sampler)
    batches = buffer.batches(8, prefetch=ahead)
    learn(buffer, batches, 0, 5)
    if way == "deepcopy":
        resumed = copy.deepcopy(buffer)
    else:
        buffer.save(tmp_path / "saved")
        if way == "load":
            resumed = ReplayBuffer.load(
                tmp_path / "saved", sampler=sampler if name in GIVEN else None, continue_episodes=True
            )
        else:
            resumed = make(sampler, seed=99)
            resumed.restore(tmp_path / "saved", continue_episodes=True)
    expected = learn(buffer, batches, 5, 30)
    assert same(learn(resumed, resumed.batches(8, prefetch=ahead), 5, 30), expected)
    if name != "tape":  # has no further draws of the same number
        assert same(dict(buffer.sample(8)), dict(resumed.sample(8)))


@pytest.mark.parametrize("resumed_ahead", [0, 1, 5])
@pytest.mark.parametrize(
    ("sampler", "steps_each"), [(replay.Queue(), 1), (replay.ShuffledEpochs(), 1)], ids=["queue", "epochs"]
)
def test_no_step_is_lost(tmp_path, sampler, steps_each, resumed_ahead):
    """With another number of batches drawn ahead, too."""
    buffer = ReplayBuffer(1000, {"x": Field((), np.int64)}, sampler=sampler, seed=0)
    buffer.extend(x=np.arange(1000))
    batches = buffer.batches(50, prefetch=3)
    seen = [next(batches).x for _ in range(4)]
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    seen += [batch.x for batch in loaded.batches(50, prefetch=resumed_ahead, total=16)]
    np.testing.assert_array_equal(np.bincount(np.concatenate(seen), minlength=1000), steps_each)


def test_a_queue_is_drained_to_its_end(tmp_path):
    buffer = ReplayBuffer(300, {"x": Field((), np.int64)}, sampler=replay.Queue(), seed=0)
    buffer.extend(x=np.arange(250))
    batches = buffer.batches(50, prefetch=3)
    seen = [next(batches).x for _ in range(4)]  # two of the three draws made ahead have failed
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    with pytest.raises(EmptyBufferError):
        seen.extend(batch.x for batch in loaded.batches(50, prefetch=3))
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(250))


def test_saved_again_before_all_of_them_came(tmp_path):
    buffer = make(replay.Queue())
    batches = buffer.batches(8, prefetch=4)
    next(batches)
    buffer.save(tmp_path)
    expected = [next(batches).x for _ in range(20)]
    seen = []
    for ahead in (2, 0, 0, 3):
        loaded = ReplayBuffer.load(tmp_path)
        batches = loaded.batches(8, prefetch=ahead)
        seen += [next(batches).x, next(batches).x]
        loaded.save(tmp_path)
    seen += [batch.x for batch in ReplayBuffer.load(tmp_path).batches(8, total=12)]
    np.testing.assert_array_equal(seen, expected)


def test_iterators_that_yield_few_of_them_leave_the_others(tmp_path):
    buffer = make(replay.Queue())
    batches = buffer.batches(8, prefetch=4)
    next(batches)
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    got = [next(loaded.batches(8)).x for _ in range(2)] + [batch.x for batch in loaded.batches(8, prefetch=1, total=5)]
    np.testing.assert_array_equal(got, [next(batches).x for _ in range(7)])


def test_two_iterators_each_receive_their_own(tmp_path):
    def run(first, two, turns):
        return tuple(dict(next(first if turn % 3 else two)) for turn in range(turns))

    buffer = make(replay.Prioritized(beta=0.4))
    first, two = buffer.batches(8, prefetch=2), buffer.batches(6, prefetch=1)
    run(first, two, 7)
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    resumed = run(loaded.batches(8, prefetch=2), loaded.batches(6, prefetch=1), 12)
    assert same(resumed, run(first, two, 12))


def test_batches_of_another_size_do_not_take_them(tmp_path):
    buffer = make(replay.Queue())
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path)
    with pytest.warns(UserWarning, match=r"2 batches of 8 rows .* batches\(8\)"):
        assert next(loaded.batches(5)).x[0] == 24
    assert next(loaded.batches(8)).x[0] == 8


def test_progress_continues_where_it_was(tmp_path):
    from replaylab.replay import Linear

    buffer = make(replay.Prioritized(beta=Linear(0.0, 1.0)))
    batches = buffer.batches(8, prefetch=3, progress=lambda k: k / 50)
    learn(buffer, batches, 0, 5)
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path, continue_episodes=True)
    resumed = loaded.batches(8, prefetch=3, progress=lambda k: (5 + k) / 50)
    assert same(learn(loaded, resumed, 5, 20), learn(buffer, batches, 5, 20))


def test_nested_fields_transforms_and_replicas(tmp_path):
    goal = {"achieved_goal": Field(), "desired_goal": Field()}
    fields = {"obs": goal, "next_obs": goal, "reward": Field(), "extra": (Field(), Field((2,), np.uint8))}
    fields |= {"terminated": Field((), bool), "truncated": Field((), bool)}
    goals = replay.Hindsight(lambda got, wanted, info: -np.abs(got - wanted), lambda got, wanted, info: got == wanted)
    buffer = ReplayBuffer(100, fields, replicas=3, transforms=[goals], sampler=replay.Prioritized(beta=0.4), seed=2)
    t = np.broadcast_to(np.arange(60.0), (3, 60))
    flags = {"terminated": t % 10 == 9, "truncated": t < 0}
    obs = {"achieved_goal": t, "desired_goal": t + 5}
    extra = (t, np.ones((3, 60, 2), np.uint8))
    buffer.extend(obs=obs, next_obs={**obs, "achieved_goal": t + 1}, reward=-t, extra=extra, **flags)
    batches = buffer.batches(8, prefetch=3)
    next(batches)
    buffer.save(tmp_path)
    loaded, part = ReplayBuffer.load(tmp_path, transforms=[goals]), buffer.part([2, 0])
    parted = part.batches(8, prefetch=3)
    for batch, resumed in zip(batches, loaded.batches(8, prefetch=3, total=10), strict=False):
        assert same(dict(batch), dict(resumed))
        of_part = next(parted)
        np.testing.assert_array_equal(of_part.id, batch.id[[2, 0]])
        np.testing.assert_array_equal(of_part.extra[1], batch.extra[1][[2, 0]])


def test_sequences_whose_drawn_steps_are_overwritten(tmp_path):
    buffer = make(
        replay.Uniform(),
        transforms=[replay.Sequence(4, overlap=0, burn_in=0)],
        storage=replay.MemoryMap(tmp_path / "rows"),
    )
    batches = buffer.batches(8, prefetch=3)
    next(batches)
    buffer.extend(**steps(500, 1000))  # of what was drawn ahead no step is stored any more
    buffer.save(tmp_path / "saved")
    expected = tuple(dict(next(batches)) for _ in range(3))
    batches.close()
    buffer.close()
    loaded = ReplayBuffer.load(tmp_path / "saved")
    assert same(tuple(map(dict, loaded.batches(8, prefetch=3, total=3))), expected)
    loaded.close()


def test_on_a_device(tmp_path):
    pytest.importorskip("torch")
    buffer = make(replay.Uniform())
    batches = buffer.batches(8, prefetch=2, device="cpu")
    next(batches)
    buffer.save(tmp_path)
    for ahead in (0, 2):
        resumed = ReplayBuffer.load(tmp_path).batches(8, prefetch=ahead, device="cpu")
        assert next(resumed).x.tolist() == next(iter(ReplayBuffer.load(tmp_path).batches(8))).x.tolist()
    assert next(resumed).x.tolist() == [next(batches), next(batches)][1].x.tolist()


def test_a_closed_iterator_leaves_nothing_to_save(tmp_path):
    buffer = make(replay.Uniform())
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    batches.close()
    buffer.save(tmp_path)
    np.testing.assert_array_equal(next(ReplayBuffer.load(tmp_path).batches(8)).id, buffer.sample(8).id)


def test_saved_by_another_thread_no_step_is_lost_or_comes_twice(tmp_path):
    buffer = ReplayBuffer(20_000, {"x": Field((), np.int64)}, sampler=replay.Queue(), seed=0)
    buffer.extend(x=np.arange(20_000))
    received, over = [], threading.Event()

    def learn():
        received.extend(batch.x for batch in buffer.batches(10, prefetch=3, total=1500))
        over.set()

    learner = threading.Thread(target=learn)
    learner.start()
    saves = 0
    while not over.is_set() or not saves:
        buffer.save(tmp_path)
        loaded = ReplayBuffer.load(tmp_path)
        rest = [batch.x for batch in loaded.batches(10, total=4)]
        first = int(rest[0][0]) // 10  # a prefix of the received batches, and then what is left, in order
        np.testing.assert_array_equal(np.concatenate(rest), 10 * first + np.arange(40))
        saves += 1
    learner.join()


def test_what_cannot_be_written_down_is_refused(tmp_path):
    class Labelled(ReplayBuffer):
        def sample(self, *args, **kwargs):
            batch = super().sample(*args, **kwargs)
            batch.__dict__["label"] = np.array([object()] * len(batch.id))
            return batch

    buffer = Labelled(10, {"x": Field()}, seed=0)
    buffer.extend(x=np.arange(10.0))
    batches = buffer.batches(4, prefetch=1)
    next(batches)
    with pytest.raises(SnapshotError, match="`label`"):
        buffer.save(tmp_path)
    batches.close()
