"""n-step returns against the plain definition, worked out from every step ever given."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaylab.errors import ConfigError, FieldError
from replaylab.replay import Field, NStep, Prioritized, ReplayBuffer, Uniform
from tests.replay.laws.test_conformance import Fresh

FIELDS = {
    "obs": Field((2,)),
    "reward": Field(),
    "next_obs": Field((2,)),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}


class Story:
    """Everything that was given, in the order of ids, one list a replica."""

    def __init__(self, replicas):
        self.steps = [[] for _ in range(replicas)]

    def n_step(self, replica, id_, transform, newest):
        """Work out the n-step transition that starts at this id, knowing only ids up to `newest`."""
        steps = self.steps[replica]
        chain = [id_]
        while len(chain) < transform.steps and not steps[chain[-1]]["ends"]:
            env = steps[id_]["env"]
            later = [i for i in range(chain[-1] + 1, newest + 1) if steps[i]["env"] == env]
            if not later:
                break
            chain.append(later[0])
        last = steps[chain[-1]]
        return {
            "reward": sum(transform.gamma**k * steps[i]["reward"] for k, i in enumerate(chain)),
            "next_obs": last["next_obs"],
            "terminated": last["terminated"],
            "truncated": last["truncated"],
            "discount": 0.0 if last["terminated"] else transform.gamma ** len(chain),
            "n_steps": len(chain),
            "obs": steps[id_]["obs"],
        }


def play(buffer, story, rng, steps, end):
    """Step every environment; some are left out, some episodes end."""
    R, E = buffer.replicas or 1, buffer.num_envs or 1
    lead = tuple(n for n in (buffer.replicas, buffer.num_envs) if n)
    for _ in range(steps):
        terminated = rng.random((R, E)) < end
        truncated = rng.random((R, E)) < end / 2
        where = rng.random((R, E)) < 0.8
        reward = rng.integers(-5, 5, (R, E)).astype(np.float32)
        obs, next_obs = rng.random((2, R, E, 2), np.float32)
        ids = buffer.add(
            obs=obs.reshape(*lead, 2),
            reward=reward.reshape(lead),
            next_obs=next_obs.reshape(*lead, 2),
            terminated=terminated.reshape(lead),
            truncated=truncated.reshape(lead),
            where=where.reshape(lead),
        )
        for r, e in np.ndindex(R, E):
            if where[r, e]:
                assert np.reshape(ids, (R, E))[r, e] == len(story.steps[r])
                story.steps[r].append(
                    {
                        "env": e,
                        "obs": obs[r, e],
                        "reward": float(reward[r, e]),
                        "next_obs": next_obs[r, e],
                        "terminated": terminated[r, e],
                        "truncated": truncated[r, e],
                        "ends": terminated[r, e] or truncated[r, e],
                    }
                )


def check(buffer, story, transform, batch_size):
    if len(buffer) == 0:
        return
    batch = buffer.sample(batch_size, progress=0.5)
    R = buffer.replicas or 1
    for r, k in np.ndindex(R, batch_size):
        at = (r, k) if buffer.replicas else k
        wanted = story.n_step(r, int(batch.id[at]), transform, len(story.steps[r]) - 1)
        for name, value in wanted.items():
            np.testing.assert_allclose(batch[name][at], value, rtol=1e-5, atol=1e-5, err_msg=name)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.sampled_from([3, 5, 64, 1000]),
    num_envs=st.sampled_from([None, 1, 3]),
    replicas=st.sampled_from([None, 2]),
    steps=st.integers(1, 6),
    gamma=st.sampled_from([1.0, 0.9, 0.0]),
    end=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    sampler=st.sampled_from([Uniform(), Prioritized(), Fresh()]),
    seed=st.integers(0, 2**32),
)
def test_against_the_definition(capacity, num_envs, replicas, steps, gamma, end, sampler, seed):
    transform = NStep(steps, gamma)
    buffer = ReplayBuffer(
        capacity, FIELDS, num_envs=num_envs, replicas=replicas, sampler=sampler, transforms=[transform], seed=0
    )
    story, rng = Story(replicas or 1), np.random.default_rng(seed)
    for _ in range(12):
        play(buffer, story, rng, int(rng.integers(1, 5)), end)
        check(buffer, story, transform, 8)


class TestTrap3:
    """The tail at a truncation, an episode's first step, and the write head."""

    def make(self, rewards, ends, transform, capacity=10):
        buffer = ReplayBuffer(capacity, FIELDS, transforms=[transform], seed=0)
        for t, (reward, end) in enumerate(zip(rewards, ends, strict=True)):
            buffer.add(
                obs=[t, t],
                reward=reward,
                next_obs=[t + 0.5, t + 0.5],
                terminated=end == "terminated",
                truncated=end == "truncated",
            )
        return buffer

    def rows(self, buffer):
        batch = buffer.sample(400)
        return {int(i): {name: batch[name][k] for name in batch} for k, i in enumerate(batch.id)}

    def test_a_truncation_keeps_the_bootstrap_and_its_true_next_obs(self):
        rows = self.rows(self.make([1, 2, 4, 8], ["", "", "truncated", ""], NStep(3, 0.5)))
        assert rows[1]["reward"] == 2 + 0.5 * 4
        assert rows[1]["next_obs"][0] == 2.5
        assert rows[1]["discount"] == 0.25
        assert rows[1]["n_steps"] == 2
        assert rows[2]["reward"] == 4
        assert rows[2]["discount"] == 0.5

    def test_a_termination_stops_the_bootstrap(self):
        rows = self.rows(self.make([1, 2, 4, 8], ["", "", "terminated", ""], NStep(3, 0.5)))
        assert rows[0]["reward"] == 1 + 0.5 * 2 + 0.25 * 4
        assert rows[0]["discount"] == 0
        assert rows[0]["terminated"]

    def test_the_newest_step_is_the_last(self):
        rows = self.rows(self.make([1, 2, 4], ["", "", ""], NStep(5, 0.5)))
        assert rows[1]["n_steps"] == 2
        assert rows[1]["discount"] == 0.25
        assert rows[2]["n_steps"] == 1

    def test_one_step_is_the_step_itself(self):
        rows = self.rows(self.make([1, 2, 4], ["", "terminated", ""], NStep(1, 0.5)))
        assert [rows[i]["reward"] for i in range(3)] == [1, 2, 4]
        assert [rows[i]["discount"] for i in range(3)] == [0.5, 0, 0.5]


def test_a_restored_buffer_follows_the_same_steps(tmp_path):
    transform = NStep(4, 0.9)
    buffer = ReplayBuffer(37, FIELDS, num_envs=3, transforms=[transform], seed=0)
    story, rng = Story(1), np.random.default_rng(1)
    play(buffer, story, rng, 40, 0.1)
    buffer.save(tmp_path)
    twin = ReplayBuffer.load(tmp_path)
    play(twin, story, rng, 3, 0.1)
    for _ in range(20):
        check(twin, story, transform, 8)


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: NStep(0), "`steps` of NStep must be at least 1, but got 0"),
            (lambda: NStep(3, 1.5), "`gamma` of NStep must be in [0, 1], but got 1.5"),
        ],
    )
    def test_options(self, make, message):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == message

    @pytest.mark.parametrize("name", ["reward", "terminated", "truncated", "next_obs"])
    def test_missing_fields(self, name):
        fields = {key: field for key, field in FIELDS.items() if key != name}
        with pytest.raises(FieldError, match=f"NStep needs the field `{name}`"):
            ReplayBuffer(10, fields, transforms=[NStep()])

    def test_two_of_a_kind(self):
        with pytest.raises(ConfigError, match="at most one of a kind"):
            ReplayBuffer(10, FIELDS, transforms=[NStep(), NStep()])

    def test_a_column_it_makes(self):
        with pytest.raises(FieldError, match="makes the column `discount` itself"):
            ReplayBuffer(10, {**FIELDS, "discount": Field()}, transforms=[NStep()])
