"""Guarantee 2: draws from several shards are as if from one buffer, and what is reported was really done."""

import numpy as np
import pytest
from scipy import stats

from replaylab.distributed.replay.distribution import Portion, split, weights_of
from replaylab.distributed.replay.shards.shard import Tally
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import (
    LAP,
    Combined,
    Geometric,
    Greedy,
    LaBER,
    Linear,
    Mixture,
    NStep,
    Online,
    Prioritized,
    Queue,
    RankBased,
    Recency,
    ReLo,
    ReplayBuffer,
    Sequence,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.research import AntiPrioritized, Blocks, Permuted
from tests.distributed.replay.conftest import EPISODES, FIELDS, episode, replay, steps
from tests.given import priorities_or_errors

FALSE_ALARM = 1e-7
STEP = 2**40 - 1
UNEQUAL = (0, 0, 0, 1, 1, 2, 3, 3, 3, 3)
"""Number of episodes by shard, for four shards."""


def unequal(sampler, **options):
    """Four shards that hold unequally many steps of unequal priorities; all their ids, in order of x."""
    made, transport = replay(4000, sampler=sampler, shards=4, **options)
    writer = made.writer()
    ids = []
    for k, shard in enumerate(UNEQUAL * 2):
        writer._routes._home[:] = shard
        ids.append(writer.put(steps(40 * k, 40, length=10**9), None, None, many=True))
        writer.flush()
    return made, transport, np.concatenate(ids)[:, 0]


def chi_square(counts, distribution):
    assert counts[distribution == 0].sum() == 0
    drawn, distribution = counts[distribution > 0], distribution[distribution > 0]
    return stats.chisquare(drawn, distribution / distribution.sum() * drawn.sum()).pvalue


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(alpha=1.0, beta=0.5)], ids=repr)
def test_four_unequal_shards_draw_as_one_buffer(sampler):
    made, _, ids = unequal(sampler)
    x = np.arange(len(ids))
    priorities = 1.0 + np.abs(np.sin(x)) * (x < 300) * 20
    priorities[::7] = 0.0
    given = priorities_or_errors(sampler, priorities)
    made.update_priorities(ids, **given)
    one = ReplayBuffer(len(ids), FIELDS, sampler=sampler, seed=0)
    one.update_priorities(one.extend(**steps(0, len(ids), 10**9)), **given)
    distribution = one.probabilities(x)
    assert made.probabilities(ids) == pytest.approx(distribution, rel=1e-6)
    counts = np.zeros(len(ids))
    for _ in range(200):
        batch = made.sample(100)
        counts += np.bincount(batch.x.astype(int), minlength=len(ids))
        assert batch.probability == pytest.approx(distribution[batch.x.astype(int)], rel=1e-6)
    assert chi_square(counts, distribution) > FALSE_ALARM
    own = one.sample(1000)
    weight = dict(zip(own.x, own.weight, strict=True))
    there = np.isin(batch.x, own.x)
    assert batch.weight[there] == pytest.approx([weight[x] for x in batch.x[there]], rel=1e-5)


def test_with_moving_priorities_and_stale_totals_what_is_reported_is_what_was_done():
    """All priorities change between the totals' telling and the draw: rows follow q, and 1/(N·q) corrects all of it."""
    made, _, ids = unequal(Prioritized(alpha=1.0, beta=1.0, normalize="none"))
    made.stats()
    random, pool = np.random.default_rng(1), made._pool
    x, shard = np.arange(len(ids), dtype=float), ids >> 40
    means, counts, expected, far = [], np.zeros(len(ids)), np.zeros(len(ids)), []
    for _ in range(250):
        reported = np.array(pool.totals())
        priorities = random.uniform(0.2, 5, 4)[shard] * (1.1 + np.sin(x))
        for slot in pool.slots:  # as another process would give it: the learner does not know
            slot.client.call("update", 0, ids[shard == slot.number] & STEP, priorities[shard == slot.number], False)
        batch = made.sample(64)
        true = np.bincount(shard, priorities)
        q = (reported / reported.sum() / true)[shard] * priorities
        at = batch.x.astype(int)
        assert batch.probability == pytest.approx(q[at], rel=1e-5)
        counts += np.bincount(at, minlength=len(ids))
        expected += q
        far.append(np.abs(q / (priorities / priorities.sum()) - 1).max())
        means.append((batch.x * batch.weight).mean())
    assert chi_square(counts, expected) > FALSE_ALARM
    assert np.mean(far) > 0.6  # so far off were the totals
    error = (np.mean(means) - x.mean()) / (np.std(means) / np.sqrt(len(means)))
    assert abs(error) < stats.norm.isf(FALSE_ALARM / 2)


def test_uniform_rows_are_corrected_for_stale_totals_alone():
    made, _, ids = unequal(Uniform())
    made.stats()
    pool, sizes = made._pool, np.bincount(ids >> 40)
    wrong = dict(enumerate((50.0, 400.0, 10.0, 90.0)))
    for slot in pool.slots:
        slot.tally = slot.tally._replace(total=wrong[slot.number])
    batch = made.sample(2000)
    shard = batch.id >> 40
    assert batch.probability == pytest.approx(np.array(list(wrong.values()))[shard] / 550 / sizes[shard])
    assert batch.weight == pytest.approx(1 / len(ids) / batch.probability)
    assert (made.sample(50).weight == 1).all()


def test_an_equal_split_would_be_caught():
    made, _, ids = unequal(Uniform())
    counts = np.zeros(len(ids))
    for slot in made._pool.slots:
        mine = ids >> 40 == slot.number
        counts[mine] = 5_000 / mine.sum()
    assert chi_square(counts, made.probabilities(ids)) < FALSE_ALARM


@pytest.mark.parametrize("totals", [[3.0, 0.0, 1.0], [0.0, 5.0], [1e-300, 1e300], [1.0] * 7, [0.0, 1.0, 0.0]])
def test_strata_give_every_row_and_the_right_shares(totals):
    random, totals = np.random.default_rng(0), np.array(totals)
    counts = np.array([split(totals, 5, random, stratified=True) for _ in range(4000)])
    assert (counts.sum(1) == 5).all()
    assert (counts[:, totals == 0] == 0).all()
    assert np.abs(counts - 5 * totals / totals.sum()).max() < 2
    assert counts.mean(0) == pytest.approx(5 * totals / totals.sum(), abs=0.05)


def as_binomial(counts, rows, p):
    """Whether counts may be binomial: what is rare is one event."""
    expected = stats.binom.pmf(np.arange(rows + 1), rows, p) * len(counts)
    found, often = np.bincount(counts, minlength=rows + 1), expected > 5
    if often.sum() == 1:
        return found[often] == len(counts)
    drawn, distribution = ([one[often][0] + one[~often].sum(), *one[often][1:]] for one in (found, expected))
    return stats.chisquare(drawn, distribution).pvalue > FALSE_ALARM


@pytest.mark.parametrize("totals", [[3.0, 0.0, 1.0], [0.0, 5.0], [1e-300, 1e300], [1.0] * 7, [1.0, 0.0], [0.1] * 10])
def test_shares_that_are_not_stratified_are_multinomial(totals):
    random, totals = np.random.default_rng(0), np.array(totals)
    counts = np.array([split(totals, 5, random, stratified=False) for _ in range(4000)])
    assert (counts.sum(1) == 5).all()
    assert (counts[:, totals == 0] == 0).all()
    for own, p in zip(counts.T, totals / totals.sum(), strict=True):
        assert as_binomial(own, 5, p)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(alpha=1.0, beta=0.5, stratified=False)], ids=repr)
def test_rows_of_a_batch_are_independent_over_shards(sampler):
    """As of one buffer: of 64 rows a shard with half of the mass gives any number, not always 32."""
    made, _ = replay(shards=2, sampler=sampler)
    made.extend(**steps(0, 400))
    first = np.array([(made.sample(64).id >> 40 == 0).sum() for _ in range(400)])
    assert as_binomial(first, 64, 0.5)


@pytest.mark.parametrize("sampler", [Uniform(stratified=True), Prioritized(), ReLo(), LAP()], ids=repr)
def test_rows_of_a_stratified_batch_are_shared_out_evenly(sampler):
    made, _ = replay(shards=2, sampler=sampler)
    made.extend(**steps(0, 400))
    assert {(made.sample(64, progress=0.0).id >> 40 == 0).sum() for _ in range(20)} == {32}


@pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
def test_weights_are_those_of_one_buffer(normalize):
    sampler = Prioritized(alpha=0.7, beta=Linear(0.4, 1.0), normalize=normalize)
    made, _, ids = unequal(sampler)
    errors = np.abs(np.cos(np.arange(len(ids)))) + 0.01
    made.update_priorities(ids, errors)
    made.stats()  # with the totals as they are now
    with pytest.warns(UserWarning, match=r"start value 0\.4 because `progress` was not passed"):
        held = made.sample(256)
    for batch, beta in ((held, 0.4), (made.sample(256, progress=0.5), 0.7)):
        q = batch.probability
        reference = {"none": 1 / len(ids), "batch": q.min(), "buffer": made.probabilities(ids).min()}[normalize]
        assert batch.weight == pytest.approx((reference / q) ** beta, rel=1e-4)


@pytest.mark.parametrize("normalize", ["buffer", "batch", "none"])
def test_weights_count_the_steps_of_shards_that_nothing_is_drawn_from(normalize):
    """N is of all that is stored, whatever its priority."""
    sampler = Prioritized(alpha=1.0, beta=0.5, normalize=normalize)
    made, _ = replay(100, sampler=sampler, shards=2, strict=True)
    one = ReplayBuffer(100, FIELDS, sampler=sampler, seed=0)
    for buffer in (made, one):
        first, second = buffer.extend(**steps(0, 5)), buffer.extend(**steps(5, 5))
        buffer.update_priorities(first, priority=np.arange(1.0, 6.0))
        buffer.update_priorities(second, priority=np.zeros(5))
    ours, theirs = (dict(zip(b.x, b.weight, strict=True)) for b in (made.sample(256), one.sample(256)))
    assert ours == pytest.approx(theirs)


def test_samplers_without_weights_have_none_where_totals_are_fresh():
    for sampler in (Uniform(), LAP()):
        made, _, ids = unequal(sampler)
        made.update_priorities(ids, np.arange(len(ids)))
        made.stats()
        assert (made.sample(64).weight == 1).all()


def test_a_portion_without_those_that_did_not_answer():
    tally = Tally(0, 1, 10, 10.0, 1.0, 10, 10, 10)
    portion = Portion(np.array([30.0, 0.0, 10.0]), {0: (np.full(3, 0.1), tally)}, {2: tally})
    assert np.concatenate(portion.probabilities) == pytest.approx(0.075)
    assert weights_of(Uniform(), None, [portion]) == pytest.approx(0.5 / 0.75)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(alpha=1.0, beta=1.0)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("transform", [NStep(3, gamma=0.9), Sequence(4, overlap=0, burn_in=0)], ids=repr)
def test_transforms_are_those_of_one_buffer(sampler, transform):
    """Episodes lie in one shard: so a drawn row is what one buffer makes of the same step."""
    made, _ = replay(400, EPISODES, sampler=sampler, transforms=[transform], next_obs="derived", shards=3, num_envs=2)
    one = ReplayBuffer(400, EPISODES, transforms=[transform], next_obs="derived", num_envs=2, seed=0)
    for k in range(12):
        both = [episode(100 * (2 * k + e), 7) for e in range(2)]
        columns = {name: np.stack([part[name] for part in both], axis=1) for name in both[0]}
        made.extend(**columns), one.extend(**columns)
    assert len({*(slot.tally.size for slot in made._pool.slots)}) == 1  # 24 episodes, 8 for each shard
    want = {float(row): k for k, row in enumerate(one.get(one.stored_ids()[0])["obs"][:, 0])}
    batch = made.sample(64)
    first = batch.obs.reshape(64, -1)[:, 0]
    same = one.as_batch([want[float(value)] for value in first])
    for name in ("obs", "reward", "next_obs"):
        assert np.array_equal(batch[name], same[name]), name


REFUSED = [
    *(Online(), SlidingWindow(), Queue(), Combined(), Recency(least=5), Geometric(), Blocks(length=4)),
    *(Uniform(replace=False), ShuffledEpochs(), Mixture([Uniform(), LAP()]), RankBased(), Greedy()),
    *(LaBER(lambda pool: pool.x), Prioritized(block_length=4)),
]


@pytest.mark.parametrize("sampler", REFUSED, ids=lambda sampler: type(sampler).__name__)
def test_samplers_whose_distributions_do_not_join_are_refused_with_the_reason(sampler):
    with pytest.raises(
        ConfigError, match=f"{type(sampler).__name__} cannot be drawn from several shards exactly: .{{20}}"
    ):
        replay(sampler=sampler)


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), ReLo(), LAP(), AntiPrioritized(), Permuted()], ids=repr)
def test_the_others_have_their_distribution(sampler):
    made, _, ids = unequal(sampler)
    made.update_priorities(ids, np.linspace(0.1, 3, len(ids)))
    assert made.probabilities(ids).sum() == pytest.approx(1.0)
    batch = made.sample(32, progress=0.0)
    assert batch.probability == pytest.approx(made.probabilities(batch.id), rel=1e-5)


def test_nothing_to_draw():
    made, _ = replay(shards=3, min_size=10)
    with pytest.raises(EmptyBufferError, match="0 steps are stored in all shards, but a batch needs 10"):
        made.sample(4)
    ids = made.extend(**steps(0, 10))
    made.update_priorities(ids, priority=np.zeros(10))
    with pytest.raises(EmptyBufferError, match="every one of the 10 stored steps has priority 0"):
        made.sample(4)


def test_several_batches_are_asked_for_by_one_call():
    """Half of those that are on their way, where they are small; and every batch follows the sampling distribution."""
    made, _, ids = unequal(Prioritized(alpha=1.0, beta=1.0), prefetch=7)
    calls = [0]
    for slot in made._pool.slots:
        call = slot.client.call
        slot.client.call = lambda *given, call=call, **more: calls.append(given[0] == "draw") or call(*given, **more)
    distribution, counts = made.probabilities(ids), np.zeros(len(ids))
    for _ in range(200):
        counts += np.bincount(made.sample(64).x.astype(int), minlength=len(ids))
    assert sum(calls) < 4 * (200 + 8) / 3
    assert chi_square(counts, distribution) > FALSE_ALARM
