"""Where sequences are drawn, weights, ids and promises of different rows are those of the sequences.

The truth is worked out by enumeration: `Truth` keeps every step's episode itself, and cuts what is stored into blocks.
False alarms: see `chi2.py`.
"""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay import (
    LAP,
    Combined,
    CustomSampler,
    Field,
    Greedy,
    LaBER,
    Mixture,
    Oracle,
    Prioritized,
    Queue,
    RankBased,
    ReLo,
    ReplayBuffer,
    Sequence,
    ShuffledEpochs,
    SlidingWindow,
    Uniform,
)
from replaylab.research import AntiPrioritized, Permuted
from tests.given import priorities_or_errors
from tests.replay.guarantees.chi2 import assert_distribution

FIELDS = {"x": Field((), np.int64), "terminated": Field((), bool), "truncated": Field((), bool)}
STRIDE = 3


class Truth:
    """A buffer with `Sequence`, and the blocks that its stored steps are cut into, the slow way."""

    def __init__(self, sampler, capacity=40, num_envs=None, replicas=None, seed=1):
        self.E, self.capacity = num_envs or 1, capacity
        self.buffer = ReplayBuffer(
            capacity,
            FIELDS,
            num_envs=num_envs,
            replicas=replicas,
            sampler=sampler,
            transforms=[Sequence(4, 4 - STRIDE, 2)],
            seed=seed,
        )
        self.lead = () if replicas is None else (replicas,)
        self.places = []  # by id: (environment, episode, step of it)
        self.episode, self.step = [0] * self.E, [0] * self.E
        self.rng = np.random.default_rng(7)

    def add(self, times):
        for _ in range(times):
            where = self.rng.random(self.E) < 0.8 if self.E > 1 else np.ones(1, bool)
            ended = self.rng.random(self.E) < 0.15
            for e in np.flatnonzero(where):
                self.places.append((e, self.episode[e], self.step[e]))
                self.step[e] = 0 if ended[e] else self.step[e] + 1
                self.episode[e] += ended[e]
            shape = (*self.lead, self.E) if self.buffer.num_envs else self.lead

            def full(value, shape=shape):
                return np.broadcast_to(value, (*self.lead, self.E)).reshape(shape)

            self.buffer.add(x=full(0), terminated=full(ended), truncated=full(False), where=full(where))

    @property
    def blocks(self):
        """The ids of every stored block, oldest first, by their newest step."""
        blocks = {}
        for id_ in range(max(0, len(self.places) - self.capacity), len(self.places)):
            env, episode, step = self.places[id_]
            blocks.setdefault((env, episode, step // STRIDE), []).append(id_)
        return sorted(blocks.values(), key=lambda ids: ids[-1])

    def update(self, rng):
        """Feedback for half of the blocks, some of it a priority of zero."""
        blocks = self.blocks
        ids = np.array([blocks[i][-1] for i in rng.permutation(len(blocks))[: len(blocks) // 2 + 1]])
        values = rng.exponential(size=len(ids)) * (rng.random(len(ids)) > 0.2)
        shape = (*self.lead, len(ids))
        fed = priorities_or_errors(self.buffer.sampler, np.broadcast_to(values, shape))
        self.buffer.update_priorities(np.broadcast_to(ids, shape), **fed)


WEIGHING = [
    kind(beta=0.7, normalize=normalize)
    for kind in (Prioritized, ReLo, AntiPrioritized, Permuted, RankBased)
    for normalize in ("buffer", "batch", "none")
] + [Permuted(beta=0.7, bins=3), Prioritized(beta=0.7, block_length=2)]


class TestWeights:
    @pytest.mark.parametrize("num_envs", [None, 3])
    @pytest.mark.parametrize("sampler", WEIGHING, ids=lambda sampler: f"{type(sampler).__name__}-{sampler.normalize}")
    def test_they_are_made_of_the_chance_of_the_block(self, sampler, num_envs):
        """(N·P)^−β over the largest of all blocks that can be drawn, through wrap-around and feedback."""
        truth, rng = Truth(sampler, num_envs=num_envs), np.random.default_rng(3)
        for _ in range(30):
            truth.add(int(rng.integers(1, 9)))
            blocks = truth.blocks
            distribution = truth.buffer._parts.core.probabilities(np.array([b[0] for b in blocks]), 4, [0.7])
            np.testing.assert_allclose(distribution.sum(), 1.0, rtol=1e-9)
            raw = {b[0]: (len(blocks) * p) ** -0.7 for b, p in zip(blocks, distribution, strict=True) if p > 0}
            batch = truth.buffer.sample(4)
            drawn = np.array([raw[id_] for id_ in batch.id.tolist()])
            largest = {"buffer": max(raw.values()), "batch": drawn.max(), "none": 1.0}[sampler.normalize]
            np.testing.assert_allclose(batch.weight, drawn / largest, rtol=1e-5)
            if sampler.normalize != "none":
                assert batch.weight.max() <= 1.0
            truth.update(rng)

    def test_a_row_has_one_weight_whichever_of_its_steps_was_drawn(self):
        truth = Truth(Prioritized(alpha=1.0, beta=1.0, normalize="none"), capacity=6)
        no = np.zeros(4, bool)
        truth.buffer.extend(x=np.arange(4), terminated=no, truncated=no)
        truth.buffer.update_priorities([0, 3], priority=[3.0, 0.5])
        truth.buffer.add(x=4, terminated=False, truncated=False)  # 3.0, in the block of 0.5
        batch = truth.buffer.sample(64)
        weights = {id_: set(batch.weight[batch.id == id_].tolist()) for id_ in (0, 3)}
        assert weights == {0: {np.float32(6.25 / 9)}, 3: {np.float32(6.25 / 3.5)}}  # 1 / (2 P)

    def test_weighted_rows_stand_for_all_blocks_alike(self):
        """Σ P·w = 1 with normalize="none" and β = 1: N counts what is returned."""
        truth = Truth(Prioritized(beta=1.0, normalize="none"))
        truth.add(90)
        truth.update(np.random.default_rng(0))
        heads = np.array([block[0] for block in truth.blocks])
        distribution = truth.buffer.probabilities(heads)
        weight = dict(zip((batch := truth.buffer.sample(4000)).id.tolist(), batch.weight.tolist(), strict=True))
        sums = sum(p * weight[h] for h, p in zip(heads.tolist(), distribution, strict=True) if p > 0)
        assert sums == pytest.approx((distribution > 0).sum() / len(heads), rel=1e-5)

    def test_a_loaded_buffer_weighs_as_the_saved_one(self, tmp_path):
        for sampler in (Prioritized(beta=0.7), RankBased(beta=0.7), Permuted(beta=0.7)):
            truth = Truth(sampler, num_envs=2)
            truth.add(60)
            truth.update(np.random.default_rng(0))
            truth.buffer.save(tmp_path)
            other = ReplayBuffer.load(tmp_path)
            for _ in range(3):
                batch, two = truth.buffer.sample(8), other.sample(8)
                np.testing.assert_array_equal(batch.weight, two.weight)
                np.testing.assert_array_equal(batch.id, two.id)
                truth.buffer.update_priorities(batch.id, np.arange(8.0))
                other.update_priorities(batch.id, np.arange(8.0))

    def test_a_custom_sampler_weighs_blocks(self):
        seen = []

        @dataclass(frozen=True)
        class Weighing(CustomSampler):
            def distribution(self, view, batch_size):
                wanted = view.ids + 1.0
                return wanted / wanted.sum()

            def weights(self, view, probabilities, progress):
                seen.append(probabilities.copy())
                return 1.0 / probabilities

        truth = Truth(Weighing(), num_envs=2, replicas=2)
        truth.add(60)
        batch = truth.buffer.sample(8)
        np.testing.assert_allclose(batch.weight, 1.0 / batch.probability, rtol=1e-6)
        np.testing.assert_array_equal(np.stack(seen), batch.probability)


class TestNoRowComesTwice:
    SAMPLERS = (
        Uniform(replace=False),
        ShuffledEpochs(),
        SlidingWindow(),
        Greedy(),
        Oracle(lambda ids: ids % 7),
    )

    @pytest.mark.parametrize("num_envs", [None, 3])
    @pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: re.sub(" at 0x[0-9a-f]+", "", repr(sampler)))
    def test_in_a_batch(self, sampler, num_envs):
        truth, rng = Truth(sampler, num_envs=num_envs), np.random.default_rng(2)
        for _ in range(40):
            truth.add(int(rng.integers(1, 7)))
            most = len(truth.blocks) if not isinstance(sampler, ShuffledEpochs) else 2
            n = max(1, min(4, most, len(truth.blocks) // 3))
            heads = [block[0] for block in truth.blocks]
            distribution = truth.buffer.probabilities(np.array(heads), batch_size=n)
            np.testing.assert_allclose(distribution.sum(), 1.0, rtol=1e-12)
            batch = truth.buffer.sample(n)
            again = isinstance(sampler, ShuffledEpochs)  # an epoch may end within the batch
            assert again or len(set(batch.id.tolist())) == n
            assert set(batch.id.tolist()) <= set(heads)
            chances = dict(zip(heads, distribution.tolist(), strict=True))
            np.testing.assert_allclose(batch.probability, [chances[i] for i in batch.id.tolist()], rtol=1e-12)

    @pytest.mark.parametrize("sampler", [Uniform(replace=False), SlidingWindow(), Greedy(), Oracle(lambda ids: ids)])
    def test_more_than_there_are_is_refused(self, sampler):
        truth = Truth(sampler)
        truth.add(60)
        count = len(truth.blocks)
        assert sorted(truth.buffer.sample(count).id.tolist()) == sorted(block[0] for block in truth.blocks)
        with pytest.raises(EmptyBufferError, match=f"different sequences.*batch_size={count + 1} and only {count}"):
            truth.buffer.sample(count + 1)

    def test_without_replacement_all_orders_of_blocks_are_alike(self):
        truth = Truth(Uniform(replace=False), capacity=9)
        truth.buffer.extend(x=np.arange(8), terminated=np.arange(8) == 3, truncated=np.zeros(8, bool))
        heads = [0, 3, 4, 7]
        assert [block[0] for block in self.blocks_of(truth.buffer)] == heads
        np.testing.assert_allclose(truth.buffer.probabilities(np.arange(8)), [0.25, 0, 0, 0.25, 0.25, 0, 0, 0.25])
        orders = {order: i for i, order in enumerate(permutations(heads, 3))}
        counts = Counter(orders[tuple(truth.buffer.sample(3).id.tolist())] for _ in range(4000))
        assert_distribution(np.array([counts[i] for i in range(24)]), np.full(24, 1 / 24))

    def blocks_of(self, buffer):
        rows = buffer._parts.core.blocks(np.arange(8), False).tolist()
        return [row for i, row in enumerate(rows) if row[0] == i]

    @pytest.mark.parametrize("num_envs", [None, 3])
    def test_an_epoch_gives_each_block_once(self, num_envs):
        """Those that grow meanwhile once more at most, in the next epoch; those overwritten are passed over."""
        truth, rng = Truth(ShuffledEpochs(), num_envs=num_envs), np.random.default_rng(4)
        truth.add(70)
        for _ in range(5):
            due = {block[-1]: block for block in truth.blocks}  # a new epoch begins
            while due:
                n = min(len(due), int(rng.integers(1, 4)))
                blocks = {block[0]: block for block in truth.blocks}
                distribution = truth.buffer.probabilities(np.array(list(blocks)), batch_size=n)
                np.testing.assert_allclose(distribution[distribution > 0], 1 / len(due), rtol=1e-12)
                assert (distribution > 0).sum() == len(due)
                for id_ in truth.buffer.sample(n).id.tolist():
                    (newest,) = [last for last in due if last in blocks[id_]]
                    del due[newest]
                if rng.random() < 0.3 and due:
                    truth.add(2)
                    oldest = len(truth.places) - truth.capacity
                    due = {last: block for last, block in due.items() if last >= oldest}

    @pytest.mark.parametrize("left", [1, 2])
    def test_beyond_an_epoch_every_block_is_alike(self, left):
        truth = Truth(ShuffledEpochs())
        truth.add(60)
        count = len(truth.blocks)
        truth.buffer.sample(count - left)
        heads = np.array([block[0] for block in truth.blocks])
        distribution = truth.buffer.probabilities(heads, batch_size=left + 3)
        np.testing.assert_allclose(np.sort(distribution)[:-left], 3 / count / (left + 3), rtol=1e-12)
        np.testing.assert_allclose(np.sort(distribution)[-left:], (1 + 3 / count) / (left + 3), rtol=1e-12)
        last = truth.buffer.sample(left + 3).id.tolist()
        rest = truth.buffer.sample(count - 3).id.tolist()
        assert sorted(last[left:] + rest) == sorted(heads.tolist())

    @pytest.mark.parametrize("num_envs", [None, 3])
    def test_a_window_goes_back_block_by_block(self, num_envs):
        window = Truth(SlidingWindow(), num_envs=num_envs)
        window.add(70)
        heads = [block[0] for block in window.blocks][::-1]
        assert window.buffer.sample(5).id.tolist() == heads[:5]

    @pytest.mark.parametrize("sampler", [Greedy(), Oracle(lambda ids: -(ids % 5))])
    def test_the_best_blocks_are_those_that_hold_the_best_steps(self, sampler):
        truth = Truth(sampler, num_envs=2)
        truth.add(50)
        rng = np.random.default_rng(1)
        for _ in range(10):
            truth.update(rng)
            truth.add(1)
            chosen = truth.buffer.sample(3).id.tolist()
            if isinstance(sampler, Oracle):
                best = sorted(
                    truth.blocks,
                    key=lambda block: (
                        min(i % 5 for i in block),
                        next(i for i in block if i % 5 == min(j % 5 for j in block)),
                    ),
                )
                assert chosen == [block[0] for block in best[:3]]


class TestOneDrawIsOneRow:
    def test_as_batch_returns_the_id_of_the_block(self):
        for replicas in (None, 2):
            truth = Truth(Uniform(), replicas=replicas)
            truth.add(60)
            every = [i for block in truth.blocks for i in block]
            ids = np.broadcast_to(every, (*truth.lead, len(every)))
            head = {i: block[0] for block in truth.blocks for i in block}
            np.testing.assert_array_equal(
                truth.buffer.as_batch(ids).id, np.broadcast_to([head[i] for i in every], ids.shape)
            )

    def test_a_queue_is_refused(self):
        for sampler in (Queue(), Mixture((Uniform(), Queue()))):
            with pytest.raises(ConfigError, match="draws single steps, each once"):
                Truth(sampler)

    def test_a_sampler_without_a_distribution_draws_sequences(self):
        @dataclass(frozen=True)
        class WithoutClosedForm(CustomSampler):
            no_closed_form = "nobody worked it out"

            def draw(self, view, batch_size, rng):
                assert view.blocks.shape == view.ids.shape
                return view.ids[:batch_size]

        truth = Truth(WithoutClosedForm())
        truth.add(20)
        batch = truth.buffer.sample(3)
        assert np.isnan(batch.probability).all()
        assert (batch.weight == 1).all()

    def test_blocks_of_a_view_are_those_of_the_buffer(self):
        views = []

        def score(ids):
            return ids

        @dataclass(frozen=True)
        class Looking(CustomSampler):
            def distribution(self, view, batch_size):
                views.append((view.ids, view.blocks))
                return np.full(len(view), 1.0 / len(view))

        truth = Truth(Looking(), num_envs=3)
        truth.add(60)
        truth.buffer.sample(1)
        ids, blocks = views[-1]
        cut = [ids[blocks == number].tolist() for number in np.unique(blocks)]
        assert sorted(cut) == sorted(truth.blocks)

    def test_memory_of_blocks_is_stated(self):
        rows = Truth(Uniform(), capacity=1000).buffer.nbytes
        assert Truth(Uniform(replace=False), capacity=1000).buffer.nbytes >= rows + 12_000
        with_blocks, plain = (Truth(s, capacity=1000).buffer.nbytes for s in (Prioritized(), LAP()))
        assert with_blocks == plain


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize(
    "sampler", [Combined(), LaBER(lambda pool: pool.id + 1.0)], ids=lambda sampler: type(sampler).__name__
)
def test_others_draw_sequences_as_before(sampler, replicas):
    truth = Truth(sampler, replicas=replicas)
    truth.add(50)
    batch = truth.buffer.sample(6)
    assert set(batch.id.ravel().tolist()) <= {block[0] for block in truth.blocks}
