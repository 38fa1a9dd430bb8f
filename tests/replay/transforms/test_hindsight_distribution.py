"""The goals of hindsight follow their sampling distribution: which rows are relabelled, and by which steps' goals.

False alarms stay under 1e-6 a test, as `chi2` says; the seeds are fixed.
"""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from replaylab.replay import FrameStack, Hindsight, NStep, Prioritized, RankBased, Sequence, Uniform
from tests.replay.guarantees.chi2 import ALARM, assert_distribution
from tests.replay.transforms.transform_worlds import (
    ByAge,
    TransformWorld,
    compute_reward,
    compute_reward_from_outcome,
    compute_terminated,
)

ROWS, BATCH = 24_000, 1000
STRATEGIES = ("future", "final", "episode")


def joint_distribution(rows, share):
    """Probability of (id, goal step, None where not relabelled) for one row of a batch."""
    distribution = Counter()
    for id_, probability in rows.distribution(BATCH).items():
        if probability:
            distribution[id_, None] = (1 - share) * probability
            for drawn in rows.drawn(id_):
                goals = rows.goal_steps(drawn)
                for goal_step in goals:
                    distribution[id_, goal_step] += share * rows.replay.distribution(BATCH)[drawn] / len(goals)
    return distribution


def check(world, share):
    """Compare many draws with the sampling distribution, in every replica."""
    counts = [Counter() for _ in world.rows]
    for _ in range(ROWS // BATCH):
        batch = world.buffer.sample(BATCH, progress=0.5)
        goals = batch.obs["desired_goal"]
        for r, rows in enumerate(world.rows):
            step_of = {rows.goal(g).tobytes(): g for g in rows.replay.stored}
            ids, relabelled = world.per_replica(batch.id)[r], world.per_replica(batch.relabelled)[r]
            mine = world.per_replica(goals)[r]
            if world.sequence:
                mine = mine[np.arange(BATCH), world.per_replica(batch.mask)[r].argmax(axis=1)]
            counts[r].update(
                (i, step_of[goal.tobytes()] if picked else None)
                for i, goal, picked in zip(ids.tolist(), mine, relabelled.tolist(), strict=True)
            )
    for rows, count in zip(world.rows, counts, strict=True):
        distribution = joint_distribution(rows, share)
        assert count.keys() <= distribution.keys()
        cells = sorted(distribution, key=str)
        probabilities = np.array([distribution[cell] for cell in cells])
        assert_distribution(np.array([count[cell] for cell in cells]), probabilities)
        chosen = sum(n for (_, goal_step), n in count.items() if goal_step is not None)
        assert stats.binomtest(chosen, ROWS, share).pvalue > ALARM


def make(strategy, *others, ratio=4.0, **options):
    """A world in which some episodes are over, some continue, and the oldest are partly overwritten."""
    transforms = [Hindsight(compute_reward_from_outcome, compute_terminated, strategy, ratio), *others]
    world = TransformWorld(23, transforms, fields="goal", lengths=(1, 9), seed=3, **options)
    world.give(31)
    if isinstance(world.sampler, Prioritized | RankBased):
        world.update_priorities(20)
    return world


@pytest.mark.parametrize("strategy", STRATEGIES)
class TestTheDistributionOfGoals:
    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_alone(self, strategy, next_obs):
        check(make(strategy, num_envs=4, next_obs=next_obs), 0.8)

    @pytest.mark.parametrize("sampler", [Uniform(replace=True), Prioritized(beta=0.5), RankBased(beta=0.5), ByAge()])
    def test_with_every_kind_of_sampler(self, strategy, sampler):
        check(make(strategy, NStep(3), sampler=sampler), 0.8)

    @pytest.mark.parametrize("sampler", [Uniform(), Prioritized(beta=0.5), ByAge()])
    def test_with_sequences_it_is_that_of_the_drawn_step(self, strategy, sampler):
        check(make(strategy, Sequence(4, 1, 1), FrameStack(2, ("obs.observation",)), sampler=sampler), 0.8)

    def test_in_replicas(self, strategy):
        check(make(strategy, NStep(2), replicas=3, num_envs=2), 0.8)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0, 9.0])
def test_the_share_of_relabelled_rows(ratio):
    world = make("future", ratio=ratio)
    if ratio:
        check(world, ratio / (ratio + 1))
    else:
        assert not world.buffer.sample(BATCH).relabelled.any()


class TestWhatTheFunctionsAreReported:
    """Info holds the steps' other columns by path: the action, the reward given, extra fields."""

    def check(self, *others, fields="goal"):
        world = TransformWorld(
            50, [Hindsight(compute_reward, compute_terminated), *others], fields=fields, lengths=(2, 9), seed=1
        )
        world.give(70)
        world.check_sample(50)

    def test_alone(self):
        self.check()

    def test_with_sequences_and_stacks(self):
        self.check(Sequence(4, 1, 2), FrameStack(2, ("obs.observation",)))

    def test_with_n_step(self):
        self.check(NStep(3))

    def test_a_sequence_s_state_is_none_of_its_steps(self):
        with pytest.raises(KeyError):
            self.check(Sequence(4, 1, 2, state=("memory",)))

    def test_without_truncated(self):
        self.check(fields="goal, never truncated")
