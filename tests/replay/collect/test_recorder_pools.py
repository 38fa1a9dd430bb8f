"""The recorder over EnvPool, real and scripted: any environments return next, in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaylab.errors import ConfigError
from replaylab.replay import Field, ReplayRecorder
from tests.replay.collect.scripted_env import SCRIPTS
from tests.replay.collect.scripted_pool import ScriptedDmPool, ScriptedPool
from tests.replay.collect.test_recorder import LAYOUTS, POOL_SCRIPTS, actions, check
from tests.replay.guarantees.test_autoreset import assert_same_transitions, stored_by_env

# Its dm API tells a time limit from another end by the episode's length alone.
LIMITED = [[(length, length < 4, length == 4) for length in lengths] for lengths in ([4, 2], [4], [1, 4, 3], [2])]


class TestAsynchronousPools:
    """Any environments return next, in any order; each is a stream of true transitions all the same."""

    @pytest.mark.parametrize("form", [ScriptedPool, ScriptedDmPool])
    @settings(max_examples=25, deadline=None)
    @given(
        kind=st.sampled_from(["box", "dict", "discrete"]),
        batch_size=st.integers(1, 4),
        layout=st.sampled_from(LAYOUTS),
        eager=st.floats(0.0, 1.0),
        seed=st.integers(0, 2**32),
    )
    def test_any_subset_in_any_order(self, form, kind, batch_size, layout, eager, seed):
        rng = np.random.default_rng(seed)

        def choose(under_way, count):
            return rng.permutation(under_way)[:count].tolist()

        pool = form(kind, POOL_SCRIPTS if form is ScriptedPool else LIMITED, batch_size, choose)
        fields = {"turn": Field((), np.int64)}
        recorder = ReplayRecorder.for_env(pool, 500, extra_fields=fields, **layout)
        recorder.async_reset()
        waiting = []
        for _ in range(40):
            if pool.under_way:
                result = recorder.recv()
                waiting += (result.observation if form is ScriptedDmPool else result[-1])["env_id"].tolist()
            ready = [i for i in rng.permutation(waiting).tolist() if rng.random() < eager or not pool.under_way]
            if ready:
                action = rng.integers(0, 7, len(ready))
                recorder.send(action, ready, turn=action * 100)
                action[:] = -1  # the caller's array, to be used again
            waiting = [i for i in waiting if i not in ready]
        stored = stored_by_env(recorder.buffer, range(4))
        for env in pool.envs:
            assert_same_transitions(stored[env.name], env.log)
        flat = {name: np.reshape(recorder.buffer.columns[name], -1) for name in ("turn", "action")}
        np.testing.assert_array_equal(flat["turn"], flat["action"] * 100)


@pytest.mark.parametrize("form", [ScriptedPool, ScriptedDmPool])
class TestSynchronousPools:
    def test_some_reset_and_some_stepped(self, form):
        """A pool of which all return, in another order each time; resets and steps of some of them between."""
        rng = np.random.default_rng(0)
        pool = form("dict", LIMITED, 4, lambda under_way, count: rng.permutation(under_way)[:count].tolist())
        recorder = ReplayRecorder.for_env(pool, 500)
        recorder.reset()
        for turn, action in enumerate(actions(4, 60)):
            recorder.step(action)
            if turn % 7 == 0:
                recorder.reset(env_ids=[2, 0])
            if turn % 5 == 0:
                recorder.step(action[1:3], [3, 1])
        check(recorder, pool.envs)

    def test_more_than_one_player_is_refused(self, form):
        pool = form("box", SCRIPTS, 4, None)
        pool.config["max_num_players"] = 2
        with pytest.raises(ConfigError, match="max_num_players=2"):
            ReplayRecorder.for_env(pool, 500)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
class TestRealEnvPool:
    """CartPole's physics tell which transitions are true: a step moves the cart by its velocity times 0.02."""

    @pytest.fixture(params=["gymnasium", "dm"])
    def make(self, request):
        envpool = pytest.importorskip("envpool", reason="EnvPool has no wheel for every machine")

        def make(**options):
            env = envpool.make("CartPole-v1", env_type=request.param, seed=3, max_episode_steps=11, **options)
            return ReplayRecorder.for_env(env, 5000)

        return make

    def check(self, buffer):
        n = len(buffer)
        step = {name: buffer.columns[name][:n] for name in buffer.fields}
        np.testing.assert_allclose(step["next_obs"][:, 0], step["obs"][:, 0] + 0.02 * step["obs"][:, 1], atol=1e-6)
        fallen = (np.abs(step["next_obs"][:, 2]) > 0.2095) | (np.abs(step["next_obs"][:, 0]) > 2.4)
        np.testing.assert_array_equal(fallen & ~step["truncated"], step["terminated"])
        assert step["terminated"].sum() > 20
        assert step["truncated"].sum() > 20
        assert (step["reward"] == 1).all()

    def test_synchronous(self, make):
        recorder = make(num_envs=5)
        recorder.reset()
        rng = np.random.default_rng(0)
        for _ in range(300):
            recorder.step((rng.random(5) < 0.7).astype(np.int32))
        self.check(recorder.buffer)
        assert len(recorder.buffer) < 1500

    def test_asynchronous(self, make):
        recorder = make(num_envs=5, batch_size=2)
        recorder.async_reset()
        rng = np.random.default_rng(0)
        recorder.recv()
        for _ in range(800):
            recorder.step((rng.random(2) < 0.7).astype(np.int32))
        self.check(recorder.buffer)


def test_real_dict_observations_are_the_same_in_both_apis():
    envpool = pytest.importorskip("envpool", reason="EnvPool has no wheel for every machine")
    stored = []
    for form in ("gymnasium", "dm"):
        env = envpool.make("BallInCupCatch-v1", env_type=form, num_envs=3, seed=0, max_episode_steps=7)
        recorder = ReplayRecorder.for_env(env, 500)
        recorder.reset()
        rng = np.random.default_rng(0)
        for _ in range(40):
            recorder.step(rng.uniform(-1, 1, (3, 2)))
        stored.append(recorder.buffer.get(np.arange(105)))
    assert len(recorder.buffer) == 105
    assert stored[0]["truncated"].sum() == 15
    np.testing.assert_equal(*stored)


def test_asynchronous_pools():
    recorder = ReplayRecorder.for_env(ScriptedPool("box", SCRIPTS, 2, lambda who, n: who[:n]), 10)
    with pytest.raises(ConfigError, match=r"call async_reset\(\), then recv\(\)"):
        recorder.reset()
    with pytest.raises(ConfigError, match="no observation to act on yet"):
        recorder.send(np.zeros(2, int), [0, 1])
    recorder.async_reset()
    recorder.recv()
    for wrong in ([0, 0], [0, 4], [-1, 0], [0.5], 0, []):
        with pytest.raises(ConfigError, match="different whole numbers from 0 to 3"):
            recorder.send(np.zeros(2, int), wrong)
    recorder.send(np.zeros(2, int))
    with pytest.raises(ConfigError, match=r"environments \[0, 1\] are at the step sent last"):
        recorder.send(np.zeros(2, int), [0, 1])
    with pytest.raises(ConfigError, match=r"environments \[0, 1\] are still under way"):
        recorder.async_reset()
