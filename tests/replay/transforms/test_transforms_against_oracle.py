"""Every combination of transforms, and none, driven by random calls: buffer and oracle must agree after every one."""

import tempfile
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.replay.transforms.transform_worlds import (
    CAPACITIES,
    COMBINATIONS,
    LENGTHS,
    MAGNITUDES,
    PLAIN_SAMPLERS,
    SAMPLERS,
    TransformWorld,
    fields_for,
    make_transforms,
)

AUTORESETS = (None, "disabled", "next_step", "same_step")


def random_world(rng):
    """A world with a random one of everything."""

    def one_of(options):
        return options[rng.integers(len(options))]

    autoreset, num_envs = one_of(AUTORESETS), one_of((None, 1, 4))
    transforms = make_transforms(rng, *one_of(COMBINATIONS), stacked_input=rng.random() < 0.5)
    return TransformWorld(
        max(one_of(CAPACITIES), num_envs or 1),
        transforms,
        fields=fields_for(rng, transforms, autoreset),
        num_envs=num_envs,
        replicas=one_of((None, 3)),
        sampler=one_of(SAMPLERS),
        autoreset=autoreset,
        next_obs=one_of(("stored", "derived")),
        lengths=one_of(LENGTHS),
        seed=int(rng.integers(2**32)),
    )


class TransformMachine(RuleBasedStateMachine):
    """Drives a buffer with transforms and its oracle together."""

    world = None

    @initialize(seed=st.integers(0, 2**32))
    def create(self, seed):
        """Choose everything by the seed: Hypothesis would leave out whole strategies."""
        self.world = random_world(np.random.default_rng(seed))
        note(repr(self.world.buffer))
        note(repr(self.world.transforms))
        self.folder = tempfile.TemporaryDirectory()

    @rule(masked=st.booleans())
    def add(self, masked):
        self.world.give(masked=masked)

    @rule()
    def clear(self):
        self.world.clear()

    @rule(T=st.one_of(st.integers(0, 9), st.integers(0, 80)), masked=st.booleans())
    def extend(self, T, masked):
        world = self.world
        self.world.give(min(T, 3 * world.buffer.capacity // world.E + 2), masked=masked)

    @rule()
    def end_episodes(self):
        self.world.end_episodes()

    @rule(batch_size=st.integers(1, 12), again=st.booleans())
    def sample(self, batch_size, again):
        self.world.check_sample(batch_size, again=again)

    @precondition(lambda self: self.world and self.world.sampler.wants_feedback)
    @rule(n=st.integers(0, 20))
    def update_priorities(self, n):
        self.world.update_priorities(n)

    @rule(n=st.integers(0, 20))
    def write(self, n):
        self.world.write(n)

    @rule(n=st.integers(0, 4))
    def remove(self, n):
        self.world.remove(n)

    @rule()
    def save_and_load(self):
        self.world.reload(self.folder.name)

    @invariant()
    def contents_agree(self):
        if self.world:
            self.world.check_contents()

    @invariant()
    def probabilities_agree(self):
        if self.world:
            self.world.check_probabilities()

    def teardown(self):
        if self.world:
            self.folder.cleanup()


COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


class PlainMachine(TransformMachine):
    """Without transforms, by samplers that the other leaves out: small rings, so that much is dropped."""

    save_and_load = None  # see tests/replay/test_snapshot.py

    @initialize(
        capacity=st.sampled_from([1, 2, 3, 5, 17, 64]),
        num_envs=st.sampled_from([None, 1, 3]),
        replicas=st.sampled_from([None, 1, 3]),
        sampler=st.sampled_from(PLAIN_SAMPLERS),
        autoreset=st.sampled_from(AUTORESETS),
        fields=st.sampled_from(["flat", "images"]),
        seed=st.integers(0, 2**32),
    )
    def create(self, capacity, num_envs, fields, seed, **options):
        options |= {"num_envs": num_envs, "fields": fields, "seed": seed}
        self.world = TransformWorld(max(capacity, num_envs or 1), [], **options)
        self.folder = tempfile.TemporaryDirectory()

    @precondition(lambda self: self.world and self.world.sampler.wants_feedback)
    @rule(n=st.integers(0, 50), low=st.integers(0, 6), high=st.integers(0, 6), as_td_error=st.booleans())
    def update_priorities(self, n, low, high, as_td_error):
        low, high = min(low, high), max(low, high)
        self.world.update_priorities(n, MAGNITUDES[low : high + 1], as_td_error=as_td_error)


TestPlain = PlainMachine.TestCase
TestPlain.settings = settings(max_examples=100, stateful_step_count=25, **COMMON)


@pytest.mark.slow
class TestPlainLong(PlainMachine.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=50, **COMMON)


TestTransforms = TransformMachine.TestCase
TestTransforms.settings = settings(max_examples=60, stateful_step_count=15, **COMMON)


@pytest.mark.slow
class TestTransformsLong(TransformMachine.TestCase):
    settings = settings(max_examples=500, stateful_step_count=30, **COMMON)


# The sweep: each combination of transforms meets every capacity, number of environments, way of keeping next_obs and
# range of episode lengths; replicas, autoreset modes and samplers take turns over them.
WORLDS = list(product(CAPACITIES, (None, 1, 4), ("stored", "derived"), LENGTHS))
TURNS = list(product((None, 3), AUTORESETS, SAMPLERS, (False, True)))


def name_of(transforms):
    names = (
        getattr(transform, "padding", "") + type(transform).__name__ + getattr(transform, "strategy", "").title()
        for transform in transforms
    )
    return "-".join(sorted(names)) or "plain"


def swept_world(number, k):
    """The k-th world of a combination of transforms."""
    capacity, num_envs, next_obs, lengths = WORLDS[k]
    turn = number * len(WORLDS) + k
    replicas, autoreset, sampler, stacked_input = TURNS[turn * 7 % len(TURNS)]
    rng = np.random.default_rng(turn)
    transforms = make_transforms(rng, *COMBINATIONS[number], stacked_input)
    return TransformWorld(
        max(capacity, num_envs or 1),
        transforms,
        fields=fields_for(rng, transforms, autoreset),
        num_envs=num_envs,
        replicas=replicas,
        sampler=sampler,
        autoreset=autoreset,
        next_obs=next_obs,
        lengths=lengths,
        seed=turn,
    )


def drive(world, steps, folder):
    """Give a world so many steps in calls of all sizes, and compare on the way; return the number given."""
    rng, added = world.rng, 0
    each = world.R * world.E
    while added < steps:
        T = None if rng.random() < 0.3 else int(rng.integers(1, 2 + max(6, (steps - added) // (3 * each))))
        world.give(T, masked=rng.random() < 0.3)
        added += each * (T or 1)
        if world.sampler.wants_feedback:
            world.update_priorities(5)
        if rng.random() < 0.3:
            world.write(int(rng.integers(0, 6)))
        if rng.random() < 0.2:
            world.remove(int(rng.integers(0, 4)))
        world.check_sample(int(rng.integers(1, 6)), again=rng.random() < 0.3)
        if rng.random() < 0.1:
            world.end_episodes()
        if rng.random() < 0.03:
            world.clear()
        if rng.random() < 0.1:
            world.reload(folder)
    world.check_contents()
    world.check_probabilities()
    return added


every_combination = pytest.mark.parametrize(
    "number",
    range(len(COMBINATIONS)),
    ids=[name_of(make_transforms(np.random.default_rng(0), *combination)) for combination in COMBINATIONS],
)


@every_combination
def test_every_combination(number, tmp_path):
    for k in range(3):
        drive(swept_world(number, (number * 3 + k) * 7 % len(WORLDS)), 60, tmp_path / str(k))


@pytest.mark.slow
@every_combination
def test_ten_thousand_steps(number, tmp_path):
    total = 0
    for k in range(len(WORLDS)):
        world = swept_world(number, k)
        wraps = world.buffer.capacity == 1000 and (number + k) % 4 == 0
        total += drive(world, 1100 * world.R if wraps else 120, tmp_path / str(k))
    assert total >= 10_000
