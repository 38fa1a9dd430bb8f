"""The samplers under Tianshou's own vector buffer: rows, feedback, several environments, saving."""

import copy
import pickle

import numpy as np
import pytest

from replaylab.errors import ConfigError, EmptyBufferError, PriorityError, ShapeError
from replaylab.replay import Combined, EpisodeEnds, LaBER, Linear, Prioritized, RankBased, Recency, Uniform

adapter = pytest.importorskip("replaylab.integrations.tianshou")
Batch = pytest.importorskip("tianshou.data").Batch

S, E = 7, 3
ORDERED = [Recency(eta=0.9, least=4, burst=2), Combined("replace"), EpisodeEnds()]


def step(envs, time, ended=False):
    """Observations are (environment, time)."""
    return Batch(
        obs=np.array([[env, time] for env in envs], float),
        act=np.zeros(len(envs), int),
        rew=np.ones(len(envs)),
        terminated=np.full(len(envs), ended),
        truncated=np.zeros(len(envs), bool),
        obs_next=np.array([[env, time + 1] for env in envs], float),
    )


def filled(sampler=RankBased(beta=0.4), envs=E, times=0, **options):  # noqa: B008
    buffer = adapter.ReplayLabVectorBuffer(envs * S, envs, sampler, **{"seed": 0} | options)
    for time in range(times):
        buffer.add(step(range(envs), time, ended=time % 4 == 3))
    return buffer


def rows(buffer):
    """All rows that lie in the buffer, as (environment, time)."""
    return {tuple(row) for row in buffer.obs[buffer.sample_indices(0)]}


def distribution(buffer):
    return buffer.priorities.probabilities(buffer.priorities.stored_ids(), batch_size=4)


class TestRows:
    @pytest.mark.parametrize("sampler", [RankBased(beta=0.4), Prioritized(beta=0.4), Uniform(), *ORDERED], ids=repr)
    @pytest.mark.parametrize("envs", [1, E])
    def test_every_row_has_its_step(self, sampler, envs):
        """Ids are in the order of `add`: of each drawn row, environment and time follow from it."""
        buffer = filled(sampler, envs)
        for time in range(3 * S):
            buffer.add(step(range(envs), time, ended=time % 4 == 3))
            batch, indices = buffer.sample(4)
            assert rows(buffer) == {(env, t) for env in range(envs) for t in range(max(0, time + 1 - S), time + 1)}
            assert len(buffer.priorities) == len(buffer)
            ids = buffer._slots._drawn._batches[0][1]
            np.testing.assert_array_equal(batch.obs, np.stack([ids % envs, ids // envs], axis=1))
            np.testing.assert_array_equal(indices % S, ids // envs % S)
            buffer.update_weight(indices, np.arange(4.0))
        assert buffer.priorities.stats().stale_updates == 0

    def test_weights(self):
        buffer = filled(Prioritized(beta=0.4, normalize="none"), times=5)
        buffer.update_weight(np.arange(3), np.array([1.0, 5.0, 9.0]))
        batch, indices = buffer.sample(16)
        ids = buffer._slots._drawn._batches[0][1]
        chances = buffer.priorities.probabilities(ids)
        np.testing.assert_allclose(batch.weight, (len(buffer) * chances) ** -0.4, rtol=1e-5)
        np.testing.assert_array_equal(buffer[indices].weight, batch.weight)
        assert (buffer[:].weight.shape, filled(times=2)[0].weight) == ((15,), 1.0)

    def test_environments_that_add_at_their_own_pace(self):
        rng, buffer = np.random.default_rng(0), filled()
        times = np.zeros(E, int)
        for _ in range(60):
            envs = np.flatnonzero(rng.random(E) < [0.9, 0.5, 0.1])
            if len(envs):
                batch = step(envs, 0)
                batch.obs[:, 1] = times[envs]
                buffer.add(batch, buffer_ids=envs)
                times[envs] += 1
            if len(buffer):
                drawn, indices = buffer.sample(8)
                assert {tuple(row) for row in drawn.obs} <= rows(buffer)
                buffer.update_weight(indices, rng.normal(size=8))
            assert len(buffer.priorities) == len(buffer)
        counts = np.bincount(np.concatenate([buffer.sample(8)[1] for _ in range(200)]), minlength=E * S)
        assert (counts > 0).sum() == len(buffer)

    def test_emptied(self):
        buffer = filled(times=5)
        buffer.reset()
        assert len(buffer.priorities) == len(buffer) == 0
        with pytest.raises(EmptyBufferError):
            buffer.sample(4)
        buffer.add(step(range(E), 0))
        assert set(buffer.sample(64)[1].tolist()) == {0, S, 2 * S}


class TestFeedback:
    @pytest.mark.parametrize("sampler", [RankBased(beta=0.4), Prioritized(beta=0.4, block_length=2)], ids=repr)
    def test_stale_feedback_changes_nothing(self, sampler):
        buffer = filled(sampler, times=S)
        _, indices = buffer.sample(4)
        for time in range(S, 2 * S):
            buffer.add(step(range(E), time))
        before = distribution(buffer)
        buffer.update_weight(indices, np.full(4, 1e6))
        np.testing.assert_array_equal(distribution(buffer), before)
        assert buffer.priorities.stats().stale_updates == 4

    def test_of_any_sign_and_kind(self):
        torch = pytest.importorskip("torch")
        buffer, other = filled(Prioritized(beta=0.4), times=4), filled(Prioritized(beta=0.4), times=4)
        buffer.update_weight(np.arange(2), np.array([-3.0, 2.0]))
        other.update_weight(np.arange(2), torch.tensor([[3.0], [-2.0]], requires_grad=True))
        np.testing.assert_array_equal(distribution(buffer), distribution(other))

    def test_what_is_no_error(self):
        buffer = filled(times=4)
        with pytest.raises(PriorityError):
            buffer.update_weight(np.arange(2), np.array([1.0, np.nan]))
        with pytest.raises(ShapeError, match="one for each of 2 slots, but got 3"):
            buffer.update_weight(np.arange(2), np.ones(3))

    def test_schedules_follow_the_batches_or_you(self):
        counted = filled(Prioritized(beta=Linear(0.0, 1.0)), times=4, total_batches=2)
        counted.update_weight(np.arange(4), np.arange(4.0) + 1)
        assert (counted.sample(8)[0].weight == 1.0).all()
        assert (counted.sample(64)[0].weight < 1.0).any()
        other = filled(Prioritized(beta=Linear(0.0, 1.0)), times=4)
        with pytest.warns(UserWarning, match=r"start value 0\.0 .*; pass total_batches=\.\.\., or set `progress`"):
            assert (other.sample(8)[0].weight == 1.0).all()
        other.progress = 0.0
        assert (other.sample(8)[0].weight == 1.0).all()


class TestSaving:
    @pytest.mark.parametrize("sampler", [RankBased(beta=0.4), ORDERED[0]], ids=repr)
    @pytest.mark.parametrize("way", ["hdf5", "pickle", "deepcopy"])
    def test_it_continues(self, sampler, way, tmp_path):
        buffer = filled(sampler, times=12)
        _, late = buffer.sample(5)
        if way == "hdf5":
            buffer.save_hdf5(str(tmp_path / "saved.hdf5"))
            other = adapter.ReplayLabVectorBuffer.load_hdf5(str(tmp_path / "saved.hdf5"))
        else:
            other = pickle.loads(pickle.dumps(buffer)) if way == "pickle" else copy.deepcopy(buffer)
        for each in (buffer, other):
            each.add(step(range(E), 12))
            each.update_weight(late, np.arange(5.0))
        np.testing.assert_array_equal(distribution(other), distribution(buffer))
        assert other.priorities.stats().stale_updates == buffer.priorities.stats().stale_updates
        np.testing.assert_array_equal(other.sample(20)[1], buffer.sample(20)[1])


class TestRefusals:
    @pytest.mark.parametrize("sampler", ORDERED, ids=repr)
    def test_some_environments_alone(self, sampler):
        buffer = filled(sampler, times=2)
        with pytest.raises(ConfigError, match=r"must add in each step, but got those of \[0, 2\] of 3"):
            buffer.add(step([0, 2], 2), buffer_ids=[0, 2])
        assert len(buffer) == len(buffer.priorities) == 2 * E
        buffer.add(step(range(E), 2), buffer_ids=range(E))

    @pytest.mark.parametrize("name", ["alpha", "beta", "weight_norm", "sample_avail"])
    def test_options_of_the_other_class(self, name):
        with pytest.raises(ConfigError, match=f"`{name}` is not taken"):
            filled(**{name: 0.5})

    def test_a_sampler_that_looks_at_rows(self):
        with pytest.raises(ConfigError, match="LaBER is written in Python and needs rows"):
            filled(LaBER(len))

    def test_setting_beta(self):
        with pytest.raises(ConfigError, match="β cannot be set"):
            filled().set_beta(0.5)


def test_samplers_without_feedback_warn_once():
    buffer = filled(times=S)
    for _ in range(999):
        buffer.sample_indices(4)
    with pytest.warns(UserWarning, match=r"RankBased draws by priorities, but 1,000 batches .* update_tensordict_pri"):
        buffer.sample_indices(4)


def test_feedback_for_all_rows_is_for_those_that_were_handed_out():
    buffer = filled(Prioritized(alpha=1.0, beta=0.4, epsilon=0.0), envs=1, times=S)
    for _ in range(5):
        buffer.sample(4)
    for time in range(S, S + 3):  # in place of rows that were drawn
        buffer.add(step([0], time))
    _, indices = buffer.sample(0)
    buffer.update_weight(indices, 1.0 + np.arange(S))
    errors = dict(zip(buffer.obs[indices, 1].astype(int).tolist(), 1.0 + np.arange(S), strict=True))
    np.testing.assert_allclose(
        distribution(buffer), np.array([errors[t] for t in range(3, S + 3)]) / sum(errors.values())
    )
