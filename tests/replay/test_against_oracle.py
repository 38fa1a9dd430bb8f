"""Random sequences of calls, given to the buffer and to the oracle, must agree after every one."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replaylab.errors import EmptyBufferError, PriorityError
from replaylab.replay import Prioritized
from tests.replay.worlds import CAPACITIES, FIELDS, SAMPLERS, World

MAGNITUDES = np.array([0.0, 1e-30, 1e-6, 1.0, 3.5, 1e6, 1e30])


class ReplayMachine(RuleBasedStateMachine):
    """Drives a buffer and its oracle together."""

    world = None

    @initialize(
        capacity=st.sampled_from(CAPACITIES),
        fields=st.sampled_from(sorted(FIELDS)),
        num_envs=st.sampled_from([None, 1, 3]),
        replicas=st.sampled_from([None, 1, 3]),
        sampler=st.sampled_from(SAMPLERS),
        autoreset=st.sampled_from([None, "disabled", "next_step", "same_step"]),
        seed=st.integers(0, 2**32),
    )
    def create(self, capacity, fields, num_envs, replicas, sampler, autoreset, seed):
        if fields in ("scalar", "bytes"):
            autoreset = None
        capacity = max(capacity, num_envs or 1)  # one step of every environment must fit
        options = {"num_envs": num_envs, "replicas": replicas, "sampler": sampler, "autoreset": autoreset}
        self.world = World(capacity, fields, seed=seed, **options)
        self.kept = []

    @rule(masked=st.booleans(), object_final=st.booleans())
    def add(self, masked, object_final):
        self.world.give(masked=masked, object_final=object_final)

    @rule()
    def clear(self):
        self.world.clear()

    @rule(T=st.one_of(st.integers(0, 9), st.integers(0, 1100)), masked=st.booleans(), object_final=st.booleans())
    def extend(self, T, masked, object_final):
        T = min(T, 3 * self.world.buffer.capacity + 2)
        self.world.give(T, masked=masked, object_final=object_final)

    @rule(batch_size=st.integers(1, 40), progress=st.floats(0, 1))
    def sample(self, batch_size, progress):
        world = self.world
        if not world.drawable(batch_size):
            with pytest.raises((EmptyBufferError, PriorityError)):
                world.buffer.sample(batch_size, progress=progress)
            return
        batch = world.buffer.sample(batch_size, progress=progress)
        world.check_batch(batch, batch_size, progress)
        self.kept.append((batch.id, batch.id.copy(), batch.probability, batch.probability.copy()))

    def some_ids(self, n):
        """Ids (R, n) of any age: stored, overwritten, repeated and -1."""
        counts = np.array([len(replay.steps) for replay in self.world.oracle.replay])[:, None]
        ages = self.world.rng.integers(1, 2 * self.world.buffer.capacity + 2, (self.world.R, n))
        return np.maximum(counts - ages, -1)

    def outward(self, array):
        return array if self.world.replicas is not None else array[0]

    @precondition(lambda self: self.world and isinstance(self.world.sampler, Prioritized))
    @rule(n=st.integers(0, 50), low=st.integers(0, 6), high=st.integers(0, 6), as_td_error=st.booleans())
    def update_priorities(self, n, low, high, as_td_error):
        world, ids = self.world, self.some_ids(n)
        values = world.rng.choice(MAGNITUDES[min(low, high) : max(low, high) + 1], ids.shape)
        values = values * world.rng.uniform(0.5, 2, ids.shape)
        if as_td_error:
            signed = values * world.rng.choice([-1, 1], ids.shape)
            count = world.buffer.update_priorities(self.outward(ids), self.outward(signed))
            values = values + world.sampler.epsilon
        else:
            count = world.buffer.update_priorities(self.outward(ids), priority=self.outward(values))
        assert type(count) is int
        assert count == world.oracle.update_priorities(ids, values)

    @invariant()
    def contents_agree(self):
        if self.world:
            self.world.check_contents()

    @invariant()
    def probabilities_agree(self):
        if self.world:
            self.world.check_probabilities()

    def teardown(self):
        for now, then, p_now, p_then in getattr(self, "kept", []):
            np.testing.assert_array_equal(now, then)
            np.testing.assert_array_equal(p_now, p_then)


COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


class PrioritizedMachine(ReplayMachine):
    """The same, where priorities matter most: small rings, so that steps with every history are dropped."""

    @initialize(
        capacity=st.sampled_from([2, 3, 5, 17]),
        replicas=st.sampled_from([None, 2]),
        sampler=st.sampled_from([sampler for sampler in SAMPLERS if isinstance(sampler, Prioritized)]),
        seed=st.integers(0, 2**32),
    )
    def create(self, capacity, replicas, sampler, seed):
        self.world = World(capacity, "scalar", replicas=replicas, sampler=sampler, seed=seed)
        self.kept = []


TestPrioritizedReplay = PrioritizedMachine.TestCase
TestPrioritizedReplay.settings = settings(max_examples=150, stateful_step_count=40, **COMMON)
TestReplay = ReplayMachine.TestCase
TestReplay.settings = settings(max_examples=200, stateful_step_count=25, **COMMON)


@pytest.mark.slow
class TestReplayLong(ReplayMachine.TestCase):
    settings = settings(max_examples=1500, stateful_step_count=50, **COMMON)
