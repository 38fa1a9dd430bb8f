"""Draws from several shards follow the distribution of one buffer, and batches report what was really drawn."""

import gc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from replaylab.distributed.replay import reader as reader_module
from replaylab.distributed.replay import shard as shard_module
from replaylab.distributed.replay.blocks import Placed, mapped
from replaylab.distributed.replay.distribution import split
from replaylab.distributed.replay.ids import shard_of
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import (
    LAP,
    Aged,
    Combined,
    Field,
    FrameStack,
    FreshFirst,
    LaBER,
    Linear,
    Mixture,
    NStep,
    Online,
    Prioritized,
    Queue,
    RankBased,
    ReLo,
    ReplayBuffer,
    Sequence,
    ShuffledEpochs,
    Uniform,
)
from replaylab.research import AntiPrioritized, Permuted
from tests.distributed.replay.conftest import FIELDS, FLAG, replay, steps
from tests.distributed.replay.in_process import Pending
from tests.given import priorities_or_errors

FALSE_ALARM = 1e-7
UNEQUAL = (0, 0, 0, 1, 1, 2, 3, 3, 3, 3)
"""Shard of each unroll, for four shards."""


def unequal(sampler, **options):
    """Four shards that hold unequally many steps of unequal priorities; all ids in order of x."""
    remote = replay(4000, sampler=sampler, shards=4, **options)
    ids = []
    for k, shard in enumerate(UNEQUAL * 2):
        remote._own_writer._turn = shard
        ids.append(remote.extend(**steps(40 * k, 40, length=10**9)))
    remote.refresh()
    return remote, np.concatenate(ids)


def chi_square(counts, distribution):
    assert counts[distribution == 0].sum() == 0
    drawn, distribution = counts[distribution > 0], distribution[distribution > 0]
    return stats.chisquare(drawn, distribution / distribution.sum() * drawn.sum()).pvalue


@pytest.mark.parametrize("batches", [1, 16])
@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(alpha=1.0, beta=0.5)], ids=repr)
def test_unequal_shards_draw_as_one_buffer(sampler, batches, monkeypatch):
    remote, ids = unequal(sampler)
    monkeypatch.setattr(remote, "_num_batches", lambda rows: batches)
    x = np.arange(len(ids))
    priorities = 1.0 + np.abs(np.sin(x)) * (x < 300) * 20
    priorities[::7] = 0.0
    given = priorities_or_errors(sampler, priorities)
    remote.update_priorities(ids, **given)
    remote.refresh()
    single = ReplayBuffer(len(ids), FIELDS, sampler=sampler, seed=0)
    single.update_priorities(single.extend(**steps(0, len(ids), 10**9)), **given)
    distribution = single.probabilities(x)
    assert remote.probabilities(ids) == pytest.approx(distribution, rel=1e-6)
    counts = np.zeros(len(ids))
    for _ in range(200):
        batch = remote.sample(100)
        counts += np.bincount(batch.x.astype(int), minlength=len(ids))
        assert batch.probability == pytest.approx(distribution[batch.x.astype(int)], rel=1e-6)
    assert chi_square(counts, distribution) > FALSE_ALARM
    own = single.sample(1000)
    weight = dict(zip(own.x, own.weight, strict=True))
    both = np.isin(batch.x, own.x)
    assert batch.weight[both] == pytest.approx([weight[x] for x in batch.x[both]], rel=1e-5)


@pytest.mark.parametrize("batches", [1, 4])
def test_stale_totals_do_not_bias(batches, monkeypatch):
    """Priorities change between the report of totals and the draw: rows follow q, and 1/(N·q) corrects all of it."""
    remote, ids = unequal(Prioritized(alpha=1.0, beta=1.0, normalize="none"))
    monkeypatch.setattr(remote, "_num_batches", lambda rows: batches)
    random, x, shard = np.random.default_rng(1), np.arange(len(ids), dtype=float), shard_of(ids)
    means, counts, expected, errors = [], np.zeros(len(ids)), np.zeros(len(ids)), []
    for _ in range(250):
        remote._group = remote._ahead = None
        reported = np.array([tally.total for tally in remote._tallies()])
        priorities = random.uniform(0.2, 5, 4)[shard] * (1.1 + np.sin(x))
        for slot in remote._slots:  # as another learner would: this one does not know
            mine = shard == slot.number
            slot.client.call("draw", [], [(ids[mine], priorities[mine], False)]).result()
        true = np.bincount(shard, priorities)
        q = (reported / reported.sum() / true)[shard] * priorities
        for _ in range(batches):
            batch = remote.sample(64)
            at = batch.x.astype(int)
            assert batch.probability == pytest.approx(q[at], rel=1e-5)
            counts += np.bincount(at, minlength=len(ids))
            expected += q
            means.append((batch.x * batch.weight).mean())
        errors.append(np.abs(q / (priorities / priorities.sum()) - 1).max())
    assert chi_square(counts, expected) > FALSE_ALARM
    assert np.mean(errors) > 0.6  # so wrong were the totals
    z = (np.mean(means) - x.mean()) / (np.std(means) / np.sqrt(len(means)))
    assert abs(z) < stats.norm.isf(FALSE_ALARM / 2)


def test_weights_of_uniform_rows_correct_stale_totals():
    remote, ids = unequal(Uniform())
    sizes = np.bincount(shard_of(ids))
    wrong = (50.0, 400.0, 10.0, 90.0)
    for slot in remote._slots:
        slot.tally = slot.tally._replace(total=wrong[slot.number])
    batch = remote.sample(2000)
    shard = shard_of(batch.id)
    assert batch.probability == pytest.approx(np.array(wrong)[shard] / 550 / sizes[shard])
    assert batch.weight == pytest.approx(1 / len(ids) / batch.probability)
    remote.refresh()
    remote._ahead = None
    assert (remote.sample(50).weight == 1).all()


def test_readers_draw_independently_from_one_distribution():
    remote, ids = unequal(Prioritized(alpha=1.0, beta=1.0))
    priorities = 1.0 + np.arange(len(ids)) % 9
    remote.update_priorities(ids, priority=priorities)
    remote.refresh()
    distribution, batches = priorities / priorities.sum(), []
    readers = [remote.reader(rank, 2) for rank in range(2)]
    counts = np.zeros((2, len(ids)))
    for _ in range(150):
        batches = [reader.sample(64) for reader in readers]
        for count, batch in zip(counts, batches, strict=True):
            count += np.bincount(batch.x.astype(int), minlength=len(ids))
    assert min(chi_square(count, distribution) for count in counts) > FALSE_ALARM
    table = counts[:, distribution > 0].reshape(2, -1, 40).sum(axis=2)
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM
    assert not np.array_equal(batches[0].id, batches[1].id)
    for reader, batch in zip(readers, batches, strict=True):
        assert reader.update_priorities(batch.id, priority=np.full(64, 50.0)) == 64
        reader.refresh()
    assert remote.probabilities(batches[0].id) == pytest.approx(remote.probabilities(batches[1].id))


@pytest.mark.parametrize("totals", [[3.0, 0.0, 1.0], [0.0, 5.0], [1e-300, 1e300], [1.0] * 7, [0.0, 1.0, 0.0]])
def test_strata_give_every_row_and_right_shares(totals):
    random, totals = np.random.default_rng(0), np.array(totals)
    counts = split(totals, 5, 4000, random, stratified=True).T
    assert (counts.sum(1) == 5).all()
    assert (counts[:, totals == 0] == 0).all()
    assert np.abs(counts - 5 * totals / totals.sum()).max() < 2
    assert counts.mean(0) == pytest.approx(5 * totals / totals.sum(), abs=0.05)


STRATIFIED = [Uniform(stratified=True), Prioritized(), ReLo(), LAP()]


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.5, stratified=False), *STRATIFIED], ids=repr)
def test_rows_are_independent_or_shared_evenly(sampler):
    remote = replay(shards=2, sampler=sampler)
    for k in range(2):
        remote.extend(**steps(50 * k, 50))
    first = np.array([(shard_of(remote.sample(64, progress=0.0).id) == 0).sum() for _ in range(400)])
    if sampler in STRATIFIED:
        assert set(first) == {32}
    else:  # binomial, with rare counts as one class
        middle = np.arange(26, 39)
        counts, expected = np.bincount(first, minlength=65)[middle], 400 * stats.binom.pmf(middle, 64, 0.5)
        rest = [400 - counts.sum()], [400 - expected.sum()]
        assert stats.chisquare(np.append(counts, rest[0]), np.append(expected, rest[1])).pvalue > FALSE_ALARM


@pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
def test_weights_are_those_of_one_buffer(normalize):
    """Also with steps of priority 0, which count in N."""
    remote, ids = unequal(Prioritized(alpha=1.0, beta=Linear(0.4, 1.0), normalize=normalize))
    priorities = np.abs(np.cos(np.arange(len(ids)))) * (np.arange(len(ids)) % 3 > 0)
    remote.update_priorities(ids, priority=priorities)
    remote.refresh()
    with pytest.warns(UserWarning, match=r"start value 0\.4 because `progress` was not passed"):
        held = remote.sample(256)
    for batch, beta in ((held, 0.4), (remote.sample(256, progress=0.5), 0.7)):
        q, least = batch.probability, priorities[priorities > 0].min() / priorities.sum()
        reference = {"none": 1 / len(ids), "batch": q.min(), "buffer": least}[normalize]
        assert batch.weight == pytest.approx((reference / q) ** beta, rel=1e-4)


STACKED = FrameStack(3, stacked_input=True)
TRANSFORMS = [NStep(3, gamma=0.9), Sequence(4, overlap=0, burn_in=0), FrameStack(3, padding="zero"), STACKED]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_rows_are_those_of_one_buffer(transform):
    """An episode is stored in one shard. Frames of stacks travel once; the reader puts both stacks together."""
    frame = Field((2,), np.uint8)
    fields = {"obs": frame, "step": Field(), "reward": Field(), "next_obs": frame}
    fields |= {"terminated": FLAG, "truncated": FLAG}
    options = {"transforms": [transform], "next_obs": "derived", "num_envs": 2}
    remote = replay(200, fields, sampler=Uniform(), shards=2, **options)
    single = ReplayBuffer(200, fields, **options, seed=0)
    writer = remote.writer()
    for t in range(90):
        frames = np.stack([np.full(2, t, np.uint8), np.full(2, t + 100, np.uint8)])
        given = {"obs": frames, "next_obs": frames + 1}
        if transform is STACKED:
            age = np.minimum(t % 9, np.arange(2, -1, -1))
            given = {name: frame[:, None] - age[:, None].astype(np.uint8) for name, frame in given.items()}
            if t % 9 < 2:  # padding repeats the first frame
                given["next_obs"][:, 0] = given["obs"][:, 0]
        step, over = np.arange(2) * 1000 + t, np.full(2, t % 9 == 8)
        given |= {"step": step, "reward": step, "terminated": over, "truncated": np.zeros(2, bool)}
        writer.add(**given), single.add(**given)
    writer.flush()
    ids = {float(step): k for k, step in enumerate(single.get(single.stored_ids()[0])["step"])}
    batch = remote.sample(300)
    same = single.as_batch([ids[float(step)] for step in batch.step.reshape(300, -1)[:, 0]])
    assert list(batch) == list(single.sample(1))
    for name in ("obs", "reward", "next_obs", "terminated"):
        assert np.array_equal(batch[name], same[name]), name


REFUSED = [
    *(Online(), Queue(), Combined(), Uniform(replace=False), ShuffledEpochs(), RankBased(), FreshFirst(Uniform())),
    *(
        Mixture([Uniform(), LAP()]),
        LaBER(lambda pool: pool.x),
        Prioritized(block_length=4),
        Aged(Prioritized(), half_life=9.0),
    ),
]


@pytest.mark.parametrize("sampler", REFUSED, ids=lambda sampler: type(sampler).__name__)
def test_samplers_whose_distributions_do_not_join(sampler):
    with pytest.raises(ConfigError, match=f"{type(sampler).__name__} cannot be drawn from several shards exactly: "):
        replay(sampler=sampler)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), ReLo(), LAP(), AntiPrioritized(), Permuted()], ids=repr)
def test_other_samplers_have_their_distribution(sampler):
    remote, ids = unequal(sampler)
    remote.update_priorities(ids, np.linspace(0.1, 3, len(ids)))
    assert remote.probabilities(ids).sum() == pytest.approx(1.0)
    batch = remote.sample(32, progress=0.0)
    assert batch.probability == pytest.approx(remote.probabilities(batch.id), rel=1e-5)


@pytest.mark.parametrize("is_near", [True, False])
def test_large_rows_pass_through_blocks_on_one_node(is_near, local, monkeypatch):
    """A shard on another node cannot map the reader's blocks, and is not asked again before it restarts."""
    monkeypatch.setattr(reader_module, "CALL_BYTES", 1)
    tried, arrays = [], Placed.arrays

    def mapping(name, nbytes):
        tried.append(name)
        return mapped(name if is_near else "of another node", nbytes)

    monkeypatch.setattr(shard_module, "mapped", mapping)
    monkeypatch.setattr(Placed, "arrays", lambda *given: used.append(None) or arrays(*given))
    remote, ids = unequal(Prioritized(alpha=1.0, beta=1.0))
    distribution, counts, used = remote.probabilities(ids), np.zeros(len(ids)), []
    for rows in (64, 64, 64, 128, 64, 64, 64):
        batches = [remote.sample(rows) for _ in range(8)]
        counts += np.bincount(np.concatenate([batch.x for batch in batches]).astype(int), minlength=len(ids))
        assert all(np.array_equal(ids[batch.x.astype(int)], batch.id) for batch in batches)
    assert chi_square(counts, distribution) > FALSE_ALARM
    assert bool(used) == is_near
    assert len(tried) < 60
    remote.close()
    del remote
    gc.collect()
    assert tried
    assert not any(Path(name).exists() for name in tried)


def test_nothing_to_draw():
    remote = replay(shards=3, min_size=10)
    with pytest.raises(EmptyBufferError, match="0 steps are stored in all shards, but a batch needs 10"):
        remote.sample(4)
    ids = remote.extend(**steps(0, 10))
    remote.update_priorities(ids, priority=np.zeros(10))
    remote.refresh()
    with pytest.raises(EmptyBufferError, match="every one of the 10 stored steps has priority 0"):
        remote.sample(4)


def test_a_call_carries_many_batches_and_their_feedback(local):
    """As many as the learner uses in 10 ms, while their rows are few bytes."""
    remote, _ = unequal(Prioritized(alpha=1.0, beta=1.0))
    for interval, row_bytes, batches in [(0.05, 1, 1), (0.004, 1, 3), (0.0002, 10**6, 1), (1e-9, 1, 16)]:
        remote._interval, remote._row_bytes, remote._period = interval, row_bytes, 0.01
        assert remote._num_batches(16) == batches
    before = len(local.clients[0].calls)
    for _ in range(80):
        remote._interval = 1e-9
        batch = remote.sample(16)
        assert batch.id.shape == batch.weight.shape == (16,)
        remote.update_priorities(batch.id, np.ones(16))
    assert len(local.clients[0].calls) - before <= 7
    assert 8 <= remote.priority_age <= 32


@pytest.mark.parametrize(("latency", "batches"), [(0.001, {3}), (0.03, {8, 9}), (0.5, {16})])
def test_calls_carry_more_batches_if_they_take_longer(latency, batches, monkeypatch):
    """An update takes 4 ms on the clock of this test."""
    now, waits, begin, result = [0.0], [], Pending.__init__, Pending.result
    monkeypatch.setattr(reader_module, "time", SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0]))

    def begins(pending, *arguments):
        begin(pending, *arguments)
        pending.ready_at = now[0] + latency

    def arrives(pending):
        now[0] = max(now[0], pending.ready_at)
        return result(pending)

    remote, _ = unequal(Uniform())
    monkeypatch.setattr(Pending, "__init__", begins)
    monkeypatch.setattr(Pending, "result", arrives)
    for _ in range(300):
        before = now[0]
        remote.sample(16)
        waits.append(now[0] - before)
        now[0] += 0.004
    assert remote._num_batches(16) in batches
    assert np.mean(waits[100:]) < 0.0004 or batches == {16}


def test_batches_are_prefetched_and_end():
    torch = pytest.importorskip("torch")
    remote, _ = unequal(Uniform())
    batches = list(remote.batches(8, prefetch=2, total=5, device="cpu"))
    assert len(batches) == 5
    assert isinstance(batches[0].x, torch.Tensor)
