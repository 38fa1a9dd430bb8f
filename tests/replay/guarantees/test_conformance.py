"""Every sampler of the library passes the suite it gives to others."""

from dataclasses import MISSING, dataclass, fields, is_dataclass

import numpy as np
import pytest

from replaylab import replay, research
from replaylab.errors import ConfigError, EmptyBufferError, IdError
from replaylab.replay.samplers.custom_sampler import TopScores
from replaylab.testing import NUM_ENVS, REPLICAS, STATES, SamplerTestCase, give


@dataclass(frozen=True)
class Fresh(replay.CustomSampler):
    """Steps of large error that were seldom replayed."""

    def distribution(self, view, batch_size):
        wanted = view.priorities / (1.0 + view.replay_counts)
        return wanted / wanted.sum()


WITH_OPTIONS = [
    replay.Uniform(),
    replay.Uniform(replace=False),
    replay.Uniform(stratified=True),
    replay.Combined(),
    replay.Combined(mode="replace"),
    replay.Combined(distinct=True),
    replay.Combined(mode="replace", distinct=True),
    replay.Recency(eta=replay.Linear(0.99, 1.0), least=5, burst=4),
    replay.Geometric(expected_age=10.0),
    replay.Geometric(expected_age=1e6),
    research.Blocks(length=4),
    replay.EpisodeEnds(share=0.5, steps=3),
    replay.EpisodeEnds(share=0.9, truncated=True),
    replay.EpisodeEnds(replay.Table((0.0, 1.0), (0.2, 0.6))),
    research.BinnedPrioritized(),
    research.BinnedPrioritized(between=1.0, within=0.0),
    research.BinnedPrioritized(between=0.0, within=1.0),
    research.BinnedPrioritized(between=0.3, within=0.9),
    replay.Prioritized(),
    replay.Prioritized(alpha=1.0, beta=1.0, normalize="batch"),
    research.Permuted(),
    research.Permuted(bins=4),
    replay.RankBased(),
    replay.RankBased(alpha=1.0, normalize="none"),
    replay.Prioritized(stratified=False),
    replay.Prioritized(replace=False),
    research.Permuted(stratified=False),
    replay.Prioritized(new_steps="largest_ever"),
    replay.RankBased(new_steps="largest_ever"),
    replay.LaBER(lambda pool: pool.id % 5),
    replay.Oracle(lambda ids: -np.abs(ids % 7 - 3.0)),
    Fresh(),
    replay.Mixture((replay.Uniform(), replay.Prioritized())),
    replay.Mixture((replay.Recency(eta=0.9, least=3, burst=5), replay.RankBased(), replay.ShuffledEpochs()), (2, 1, 1)),
    replay.Aged(replay.Uniform(), half_life=6.0),
    replay.Aged(replay.Uniform(stratified=True), half_life=20.0, floor=0.3, window=25),
    replay.Aged(replay.Prioritized(), half_life=10.0),
    replay.Aged(replay.Prioritized(stratified=False), half_life=5.0, floor=0.2),
    replay.Aged(replay.Prioritized(normalize="batch"), floor=0.5, half_life=1e-3),
    replay.Aged(replay.ReLo(), window=19),
    replay.FreshFirst(replay.Uniform()),
    replay.FreshFirst(replay.Aged(replay.Prioritized(), half_life=8.0, floor=0.1)),
]

IN_BLOCKS = [
    replay.Prioritized(block_length=4),
    replay.Prioritized(alpha=1.0, beta=1.0, normalize="batch", block_length=8),
    replay.ReLo(block_length=2),
    research.AntiPrioritized(block_length=4),
    research.Permuted(block_length=4),
    research.Permuted(bins=4, block_length=2),
    replay.Prioritized(block_length=4, stratified=False),
    replay.Mixture(
        (replay.Uniform(), research.Permuted(block_length=2), research.AntiPrioritized(block_length=4)), (1, 1, 2)
    ),
]
"""Rows of a batch depend on each other, and batches must fit."""

ONCE = [replay.Queue()]
"""Each step comes once, so no more can be drawn than is added; `test_queues_and_sweeps.py` has the rest."""


BY_A_CLOCK = [
    replay.Aged(replay.Uniform(stratified=True), half_life=20.0, floor=0.3, clock="x"),
    replay.Aged(replay.Prioritized(), half_life=8.0, window=25, clock="x"),
]
"""The buffers must have the field."""


def needs_nothing(kind):
    return is_dataclass(kind) and all(field.default is not MISSING for field in fields(kind))


EXPORTED = [getattr(package, name) for package in (replay, research) for name in package.__all__]
PUBLIC = [kind for kind in EXPORTED if isinstance(kind, type) and issubclass(kind, replay.Sampler)]
CHOSEN = {type(sampler) for sampler in WITH_OPTIONS + ONCE}
SAMPLERS = [*WITH_OPTIONS, *(kind() for kind in PUBLIC if kind not in CHOSEN and needs_nothing(kind))]
"""A sampler of which no options are chosen above is tested with its defaults."""

EVERY = [*SAMPLERS, *IN_BLOCKS, *ONCE]


def kind_of(sampler):
    return type(sampler).__name__


class LaBERTestCase(SamplerTestCase):
    """Rows follow the scores given the pool, which its score function sees."""

    def fill(self, state, **options):
        def score(pool):
            self.pool = pool.id
            return pool.x % 5

        self.sampler = replay.LaBER(score)
        return super().fill(state, **options)

    def draw_with_distribution(self, buffer, ids):
        drawn = self.draw(buffer).id
        pool = self.pool.reshape(buffer.replicas or 1, 4 * self.batch_size)
        distribution = np.stack([np.bincount(row - ids[0], row % 5, minlength=len(ids)) for row in pool])
        distribution /= distribution.sum(axis=1, keepdims=True)
        return (
            distribution,
            drawn,
            np.take_along_axis(distribution, drawn.reshape(len(distribution), -1) - ids[0], axis=1),
        )


class BlocksTestCase(SamplerTestCase):
    """Rows come in an order, so the one that is compared with the sampling distribution is picked at random."""

    independent = False
    rng = np.random.default_rng(9)

    def draw_with_distribution(self, buffer, ids):
        distribution, drawn, stated = super().draw_with_distribution(buffer, ids)
        order = self.rng.permutation(drawn.shape[-1])
        return distribution, drawn[..., order], stated[..., order]


class QueueTestCase(SamplerTestCase):
    """Rows are certain, and each comes once: there are as many batches as steps that were not drawn."""

    def compare(self, buffer, ids):
        waiting = buffer.stored_ids()[0]
        for _ in range(len(waiting) // self.batch_size):
            distribution, drawn, stated = self.draw_with_distribution(buffer, ids)
            rows = drawn.reshape(len(distribution), -1) - ids[0]
            counts = np.stack([np.bincount(row, minlength=len(ids)) for row in rows])
            np.testing.assert_allclose(distribution, counts / self.batch_size)
            assert (stated == 1 / self.batch_size).all()
        with pytest.raises(EmptyBufferError, match="not drawn yet"):
            self.draw(buffer)
        assert (drawn[..., -1] == waiting[len(waiting) // self.batch_size * self.batch_size - 1]).all()

    @pytest.mark.parametrize("num_envs", NUM_ENVS)
    def test_rows_are_the_steps_of_their_ids(self, num_envs):
        """While steps are added between the draws."""
        buffer, _ = self.fill("wrapped", num_envs=num_envs)
        for _ in range(150):
            give(buffer, 9)
            batch = self.draw(buffer)
            np.testing.assert_array_equal(batch.x, batch.id)

    def test_one_seed_one_sequence(self):
        """Nothing is random."""
        assert self.draw(self.fill("full")[0]).id.tolist() == list(range(self.batch_size))

    def test_replicas_are_single_buffers(self):
        """So all replicas are alike."""
        assert self.draw(self.fill("full", replicas=3)[0]).id.tolist() == [list(range(self.batch_size))] * 3


class FewBatches:
    """Many batches with each number of replicas and of environments once; else enough for what is plainly wrong."""

    batches, few = 300, 100

    def compare(self, buffer, ids):
        if (buffer.replicas, buffer.num_envs) not in zip(REPLICAS, NUM_ENVS, strict=True):
            self.batches = self.few
        super().compare(buffer, ids)


def case(sampler):
    base = {
        replay.LaBER: LaBERTestCase,
        replay.Queue: QueueTestCase,
    }.get(type(sampler), SamplerTestCase)
    base = BlocksTestCase if sampler in IN_BLOCKS else base
    attributes = {
        "sampler": sampler,
        "independent": base.independent and not isinstance(sampler, research.Blocks),
    }
    attributes |= {} if attributes["independent"] else {"batches": 500, "few": 300}  # of which only first rows count
    attributes |= {} if sampler.in_core else {"batches": 100, "few": 40}  # a draw in Python takes ten times as long
    return type("Case", (FewBatches, base), attributes)


globals().update({f"Test{type(sampler).__name__}{i}": case(sampler) for i, sampler in enumerate([*EVERY, *BY_A_CLOCK])})


def kinds(base=replay.Sampler):
    """Every class of sampler the library has, public or not; the laboratory's are tested with their learners."""
    classes = {
        kind
        for kind in base.__subclasses__()
        if kind.__module__.startswith(("replaylab.replay.", "replaylab.research."))
    }
    return classes.union(*map(kinds, base.__subclasses__()))


class TestTheMatrixIsComplete:
    """Every sampler and placebo, in every state of guarantee 2, with and without replicas and environments."""

    def test_no_sampler_is_left_out(self):
        samplers = set(PUBLIC)
        assert samplers - {replay.Sampler, TopScores} == kinds() - {TopScores}
        # What a tape draws stands on it; tests/research has the rest.
        tested = {type(sampler) for sampler in SAMPLERS + ONCE} - {Fresh}
        assert (
            samplers - {replay.Sampler, replay.CustomSampler, TopScores, research.Tape, research.ByStepsToEnd} == tested
        )

    def test_no_state_is_left_out(self):
        assert {"empty slots", "wrapped", "after updates", "zero priorities", "removed steps"} <= set(STATES)
        assert {None, 1, 3} <= set(REPLICAS)
        assert {None, 1, 4} <= set(NUM_ENVS)

    @pytest.mark.parametrize("num_envs", NUM_ENVS)
    @pytest.mark.parametrize("state", STATES)
    def test_a_state_is_what_its_name_says(self, state, num_envs):
        buffer, ids = case(replay.Prioritized())().fill(state, replicas=3, num_envs=num_envs)
        distribution = buffer.probabilities(np.tile(ids, (3, 1)))
        removed = state == "removed steps"
        assert (len(buffer) < buffer.capacity) == (removed or state == "empty slots")
        assert (ids[0] > 2 * buffer.capacity) == (state not in ("empty slots", "full"))
        assert (len(np.unique(distribution)) > 10) == (removed or state in ("after updates", "zero priorities"))
        assert ((distribution == 0).sum() > 5) == (removed or state == "zero priorities")
        assert (len(buffer) < len(ids)) == removed
        stored = buffer.stored_ids()[2]
        np.testing.assert_array_equal(buffer.get(stored[None].repeat(3, 0))["x"][2], stored)


class Lopsided(Fresh):
    """Draws by another sampling distribution than it states."""

    def draw(self, view, batch_size, rng):
        return rng.choice(view.ids[: len(view) // 2 + 5], size=batch_size)


class TestCustomSamplers:
    def filled(self):
        return case(Fresh())().fill("wrapped")[0]

    def test_out_is_refused(self):
        buffer = self.filled()
        with pytest.raises(ConfigError, match="`out` is not taken with a sampler written in Python; leave it out"):
            buffer.sample(4, out=buffer.sample(4))

    def test_a_batch_size_of_zero_is_refused(self):
        with pytest.raises(ConfigError, match="`batch_size` must be at least 1, but got 0"):
            self.filled().probabilities([29], batch_size=0)

    def test_an_id_never_given_out_is_refused_as_the_core_does(self):
        messages = []
        for sampler in (Fresh(), replay.Uniform()):
            buffer = case(sampler)().fill("full")[0]
            assert buffer.probabilities([-1], batch_size=1).tolist() == [0.0]
            with pytest.raises(IdError) as caught:
                buffer.probabilities([0, 37], batch_size=1)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert messages[0].startswith("id 37 was never given out: ids so far are 0 to 36")

    def test_a_distribution_or_a_reason_for_none_is_needed(self):
        buffer = case(Silent())().fill("full")[0]
        with pytest.raises(
            NotImplementedError, match="Silent must define `distribution`, or `draw` and the reason in `no_closed_form`"
        ):
            buffer.sample(3)


@dataclass(frozen=True)
class Silent(replay.CustomSampler):
    """States no closed form, and no reason either."""


@dataclass(frozen=True)
class WithoutClosedForm(replay.CustomSampler):
    """Draws the oldest steps; says that it has no closed form."""

    no_closed_form = "nobody worked it out"

    def draw(self, view, batch_size, rng):
        return view.ids[:batch_size]


class TestWithoutClosedForm(SamplerTestCase):
    sampler = WithoutClosedForm()

    def test_the_probability_of_a_row_is_not_a_number(self):
        assert np.isnan(self.draw(self.fill("full")[0]).probability).all()


class TestTheSuiteCanFail:
    @pytest.mark.parametrize("state", STATES)
    def test_a_wrong_distribution(self, state):
        with pytest.raises(AssertionError, match=r"breaks its sampling distribution|of probability zero was drawn"):
            case(Lopsided())().test_draws_follow_the_distribution(state, 3, 4)

    def test_a_wrong_probability_of_a_row(self):
        broken = case(replay.Uniform())()
        buffer, ids = broken.fill("full")
        tilt = 1.0 + 0.001 * (-1.0) ** np.arange(36)  # too little for the counts to show
        broken.distribution = lambda buffer, ids: np.append(tilt, 1.0)[None] / 37
        with pytest.raises(AssertionError, match="`probability` differs from its sampling distribution"):
            broken.compare(buffer, ids)
