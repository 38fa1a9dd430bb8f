"""The recorder stores what truly happened, whatever the environments are and however they reset."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from replaylab.errors import ConfigError, DtypeError, FieldError, ShapeError
from replaylab.replay import Field, FrameStack, NStep, ReplayBuffer, ReplayRecorder
from tests.oracle import map_leaves
from tests.replay.buffers import cases, refused, transition
from tests.replay.collect.scripted_env import MODES, OBSERVATIONS, SCRIPTS, ScriptedEnv, make_vector
from tests.replay.collect.scripted_pool import ScriptedPool, stack
from tests.replay.guarantees.test_autoreset import assert_same_transitions, stored_by_env

# EnvPool never reports both ends at once.
POOL_SCRIPTS = [[(length, ends and not late, late) for length, ends, late in script] for script in SCRIPTS]
NUMBERED = list(enumerate(POOL_SCRIPTS))
MISSING = object()
LAYOUTS = [{}, {"replicas": 4}, {"replicas": 2}]


def actions(count, steps, seed=0):
    return np.random.default_rng(seed).integers(0, 7, (steps, count))


def play(recorder, steps, seed=0, **extra):
    """Step a recorder as its environments would be stepped; the caller resets where they do not."""
    obs, _ = recorder.reset(seed=seed)
    for action in actions(recorder.num_envs, steps, seed):
        obs, _, terminated, truncated, _ = recorder.step(action, **extra)
        ended = terminated | truncated
        if recorder.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            obs, _ = recorder.reset(options={"reset_mask": ended})
    return obs


def check(recorder, envs):
    """Compare what is stored with the environments' own logs."""
    stored = stored_by_env(recorder.buffer, range(len(envs)))
    for env in envs:
        assert_same_transitions(stored[env.unwrapped.name], env.unwrapped.log)
    assert sum(row[4] or row[5] for rows in stored.values() for row in rows) > 5


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("mode", MODES)
class TestVectorEnvironments:
    @pytest.mark.parametrize("layout", LAYOUTS, ids=str)
    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_truth_is_stored(self, kind, mode, layout, seed):
        vector = make_vector(kind, mode)
        recorder = ReplayRecorder.for_env(vector, 1000, **layout)
        play(recorder, 32, seed)
        check(recorder, vector.envs)

    @pytest.mark.parametrize(
        ("scripts", "copy"), [(SCRIPTS, False), (SCRIPTS[:1], True)], ids=["that reuse their arrays", "only one"]
    )
    def test_of_other_makes(self, kind, mode, scripts, copy):
        makers = [lambda i=i, s=s: ScriptedEnv(kind, i, s) for i, s in enumerate(scripts)]
        vector = SyncVectorEnv(makers, copy=copy, autoreset_mode=mode)
        recorder = ReplayRecorder.for_env(vector, 1000)
        play(recorder, 32)
        check(recorder, vector.envs)

    def test_the_recorder_resets_them_itself(self, kind, mode):
        vector = make_vector(kind, mode)
        recorder = ReplayRecorder.for_env(vector, 1000, reset_ended=True)
        recorder.reset(seed=0)
        for action in actions(4, 32):
            obs, _, terminated, truncated, info = recorder.step(action)
            ended = terminated | truncated
            if mode is not AutoresetMode.NEXT_STEP and ended.any():
                np.testing.assert_array_equal(info["_final_obs"], ended)
                assert [final is not None for final in info["final_obs"]] == ended.tolist()
                for i in np.flatnonzero(ended):
                    assert_same_obs(info["final_obs"][i], vector.envs[i].log[-1][3])
                    assert_same_obs(row(obs, i), vector.envs[i].observe())
        check(recorder, vector.envs)


def test_what_a_step_returned_outlives_the_reset_after_it():
    makers = [lambda i=i, s=s: ScriptedEnv("tuple", i, s) for i, s in enumerate(SCRIPTS)]
    vector = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
    recorder = ReplayRecorder.for_env(vector, 100, reset_ended=True)
    recorder.reset()
    *_, info = recorder.step(np.zeros(4, int))
    assert_same_obs(info["final_obs"][1], vector.envs[1].log[-1][3])


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("mode", MODES)
def test_environments_in_other_processes(kind, mode):
    """Compared with the same ones in this process, whose logs are at hand."""
    makers = [lambda i=i, s=s: ScriptedEnv(kind, i, s) for i, s in enumerate(SCRIPTS[:2])]
    vector = AsyncVectorEnv(makers, copy=False, autoreset_mode=mode)
    recorder = ReplayRecorder.for_env(vector, 1000)
    play(recorder, 15)
    vector.close()
    twin = ReplayRecorder.for_env(make_vector(kind, mode, SCRIPTS[:2]), 1000)
    play(twin, 15)
    check(recorder, twin.envs)


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("layout", [{}, {"replicas": 1}], ids=str)
@pytest.mark.parametrize("reset_ended", [False, True])
def test_a_single_environment(kind, layout, reset_ended):
    env = ScriptedEnv(kind, 0, SCRIPTS[0])
    recorder = ReplayRecorder.for_env(env, 1000, reset_ended=reset_ended, **layout)
    obs, _ = recorder.reset(seed=3)
    for action in actions(1, 40)[:, 0]:
        obs, _, terminated, truncated, info = recorder.step(action)
        ended = terminated or truncated
        assert ("final_obs" in info) == (reset_ended and ended)
        if ended:
            assert_same_obs(info["final_obs"] if reset_ended else obs, env.log[-1][3])
            if not reset_ended:
                obs, _ = recorder.reset()
        assert_same_obs(obs, env.observe())
    check(recorder, [env])


def row(tree, i):
    if isinstance(tree, dict):
        return {key: row(child, i) for key, child in tree.items()}
    return tuple(row(child, i) for child in tree) if isinstance(tree, tuple) else tree[i]


def assert_same_obs(obs, expected):
    no = (0, 0.0)
    assert_same_transitions([(obs, *no)], [(expected, *no)])


class TestFurtherFields:
    def make(self, mode=AutoresetMode.SAME_STEP, kind="box", **options):
        extra = {"log_prob": Field(), "state": (Field((2,)), {"h": Field((), np.int32)})}
        return ReplayRecorder.for_env(make_vector(kind, mode), 100, extra_fields=extra, **options)

    def test_they_are_stored_with_the_step(self):
        recorder = self.make(replicas=2)
        recorder.reset()
        state = (np.arange(8).reshape(4, 2), {"h": np.arange(4)})
        recorder.step(np.arange(4), log_prob=np.array([0.5, 1.5, 2.5, 3.5]), state=state)
        assert recorder.ids.tolist() == [[0, 1], [0, 1]]
        step = recorder.buffer.get(recorder.ids)
        assert step["log_prob"].tolist() == [[0.5, 1.5], [2.5, 3.5]]
        assert step["state"][0].tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
        assert step["state"][1]["h"].tolist() == [[0, 1], [2, 3]]

    @pytest.mark.parametrize(
        ("extra", "error", "words"),
        [
            ({"log_prob": MISSING, "state": MISSING}, FieldError, "missing `log_prob`, `state`"),
            ({"log_prob": MISSING, "log_probs": 0}, FieldError, "did you mean `log_prob`"),
            ({"log_prob": None}, ShapeError, "log_prob"),
            ({"log_prob": np.zeros(3)}, ShapeError, "log_prob"),
            ({"log_prob": np.zeros(4, complex)}, DtypeError, "log_prob"),
            ({"state": (np.zeros((4, 2)),)}, FieldError, "`state.1.h`"),
        ],
    )
    def test_what_does_not_fit_is_refused_before_a_step(self, extra, error, words):
        recorder = self.make()
        recorder.reset()
        complete = {"log_prob": np.zeros(4), "state": (np.zeros((4, 2)), {"h": np.zeros(4, int)})}
        extra_values = {name: value for name, value in (complete | extra).items() if value is not MISSING}
        with pytest.raises(error, match=words):
            recorder.step(np.zeros(4, int), **extra_values)
        assert all(not env.log for env in recorder.envs)
        recorder.step(np.zeros(4, int), **complete)
        assert len(recorder.buffer) == 4

    def test_actions_too(self):
        recorder = self.make()
        recorder.reset()
        with pytest.raises(DtypeError, match="action"):
            recorder.step(np.zeros(4), log_prob=np.zeros(4), state=(np.zeros((4, 2)), {"h": np.zeros(4, int)}))

    def test_fewer_fields(self):
        """A buffer may leave out what it does not need."""
        vector = make_vector("box", "Disabled")
        recorder = ReplayRecorder(vector, ReplayBuffer(100, {"obs": Field((4,)), "reward": Field()}, num_envs=4))
        recorder.reset()
        recorder.step(np.zeros(4, int))
        assert recorder.buffer.columns["obs"][:4, 0].tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("mode", MODES)
    def test_no_reward(self, mode):
        """Steps that a buffer does not store change nothing about the others."""
        vector = make_vector("box", mode)
        recorder_of_all = ReplayRecorder.for_env(make_vector("box", mode), 1000)
        fields = {name: tree for name, tree in recorder_of_all.buffer.fields.items() if name != "reward"}
        recorder = ReplayRecorder(vector, ReplayBuffer(1000, fields, num_envs=4, autoreset=mode))
        play(recorder, 40)
        play(recorder_of_all, 40)
        for name in fields:
            np.testing.assert_array_equal(recorder.buffer.columns[name], recorder_of_all.buffer.columns[name])


class TestItIsTheEnvironments:
    def test_attributes_are_theirs(self):
        vector = make_vector("box", "NextStep")
        recorder = ReplayRecorder.for_env(vector, 100)
        assert recorder.env is vector
        assert recorder.num_envs == 4
        assert recorder.single_action_space == vector.single_action_space
        assert recorder.unwrapped is vector
        assert recorder.envs is vector.envs
        assert "SyncVectorEnv" in repr(recorder)
        assert "ReplayBuffer" in repr(recorder)
        with pytest.raises(AttributeError, match="no_such_thing"):
            recorder.no_such_thing  # noqa: B018
        with pytest.raises(AttributeError):
            ReplayRecorder.__new__(ReplayRecorder).anything  # noqa: B018

    def test_they_cannot_be_stepped_past_it(self):
        vector = AsyncVectorEnv([lambda: ScriptedEnv("box", 0, SCRIPTS[0])])
        recorder = ReplayRecorder.for_env(vector, 100)
        with pytest.raises(AttributeError, match="past the recorder"):
            recorder.step_async(np.zeros(1, int))
        recorder.close()

    def test_what_they_return_is_returned(self):
        recorder, plain = ReplayRecorder.for_env(make_vector("box", "SameStep"), 100), make_vector("box", "SameStep")
        results = [(recorder.reset(seed=1), plain.reset(seed=1))]
        results += [(recorder.step(action), plain.step(action)) for action in actions(4, 5)]
        for result, expected in results:
            np.testing.assert_equal(result[:-1], expected[:-1])
            assert repr(result[-1]) == repr(expected[-1])

    def test_the_options_of_a_reset_stay_the_callers(self):
        recorder = ReplayRecorder.for_env(make_vector("box", "Disabled"), 100)
        options = {"reset_mask": np.ones(4, bool)}
        recorder.reset()
        recorder.reset(options=options)
        assert list(options) == ["reset_mask"]

    def test_wrappers_inside(self):
        vector = gym.wrappers.vector.RescaleObservation(
            gym.make_vec("MountainCar-v0", 3, vectorization_mode="sync"), -np.ones(2, "f4"), np.ones(2, "f4")
        )
        vector = gym.wrappers.vector.RecordEpisodeStatistics(vector)
        recorder = ReplayRecorder.for_env(vector, 100)
        obs, _ = recorder.reset(seed=0)
        after = recorder.step(np.ones(3, int))[0]
        stored = recorder.buffer.get(recorder.ids)
        np.testing.assert_array_equal(stored["obs"], obs)
        np.testing.assert_array_equal(stored["next_obs"], after)

    def test_torch_environments(self):
        torch = pytest.importorskip("torch")

        class ToTorch(gym.vector.VectorWrapper):
            def reset(self, **options):
                obs, info = self.env.reset(**options)
                return torch.as_tensor(obs), info

            def step(self, actions):
                *arrays, info = self.env.step(actions.numpy())
                return *map(torch.as_tensor, arrays), info

        vector = ToTorch(make_vector("box", "NextStep"))
        recorder = ReplayRecorder.for_env(vector, 1000)
        obs, _ = recorder.reset()
        for action in actions(4, 30):
            obs, *_ = recorder.step(torch.as_tensor(action))
        assert isinstance(obs, torch.Tensor)
        check(recorder, vector.unwrapped.envs)


class TestWithTransforms:
    @pytest.mark.parametrize("mode", [*MODES, None])
    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_stacks_that_the_environments_made(self, mode, next_obs):
        """Gymnasium's own stacks go in, single frames are stored, the same stacks come out."""
        makers = [lambda i=i, s=s: gym.wrappers.FrameStackObservation(ScriptedEnv("box", i, s), 3) for i, s in NUMBERED]
        env = makers[0]() if mode is None else SyncVectorEnv(makers, autoreset_mode=mode)
        options = {"transforms": (FrameStack(3, stacked_input=True),), "next_obs": next_obs}
        recorder = ReplayRecorder.for_env(env, 1000, reset_ended=True, **options)
        truth = {}
        obs, _ = recorder.reset()
        for action in actions(4, 60):
            after, _, terminated, truncated, info = recorder.step(action if mode else action[0])
            last = info.get("final_obs")
            for i, ended in enumerate(np.atleast_1d(terminated | truncated)):
                step = np.atleast_1d(recorder.ids)[i]
                reached = last if mode is None else None if last is None else last[i]
                reached = reached if ended and reached is not None else after[i] if mode else after
                truth[step] = (obs[i] if mode else obs, reached)
            obs = after
        batch = recorder.buffer.sample(300)
        for step, drawn_obs, found_next in zip(batch.id.tolist(), batch.obs, batch.next_obs, strict=True):
            np.testing.assert_array_equal(drawn_obs, truth[step][0])
            np.testing.assert_array_equal(found_next, truth[step][1])

    def test_stacks_in_a_field_of_one_s_own(self):
        """They are given as the environments' observations are."""
        makers = [lambda i=i, s=s: gym.wrappers.FrameStackObservation(ScriptedEnv("box", i, s), 3) for i, s in NUMBERED]
        env = SyncVectorEnv(makers, autoreset_mode="SameStep")
        declared = ReplayBuffer.for_env(env, 1000, transforms=(FrameStack(3, stacked_input=True),)).fields
        fields = declared | {"context": declared["obs"]}
        stacks = FrameStack(3, fields=("obs", "context"), stacked_input=True)
        buffer = ReplayBuffer(1000, fields, num_envs=4, autoreset="same_step", transforms=(stacks,), seed=0)
        recorder = ReplayRecorder(env, buffer)
        obs, _ = recorder.reset()
        for action in actions(4, 60):
            obs, *_ = recorder.step(action, context=obs)
        batch = buffer.sample(300)
        np.testing.assert_array_equal(batch.context, batch.obs)


def begun(mode="NextStep", kind="box", **options):
    return ReplayRecorder.for_env(make_vector(kind, mode), 10, **options)


def onto(vector, fields, **layout):
    return lambda: ReplayRecorder(vector, ReplayBuffer(10, fields, **layout))


def undeclared():
    vector = make_vector("box", "NextStep")
    vector.metadata = {}
    ReplayRecorder(vector, begun().buffer)


def nested_otherwise():
    fields = {"obs": {"time": Field((3,)), "place": Field()}}
    ReplayRecorder(make_vector("dict", "Disabled"), ReplayBuffer(10, fields, num_envs=4)).reset()


def without_a_pool():
    recorder = begun()
    recorder.reset()
    recorder.step(np.zeros(4, int), [0, 1])


DISABLED, OBS = make_vector("box", "Disabled"), {"obs": Field((4,))}
RESET = transition(Field((4,)))
ERRORS = [
    (ConfigError, "Gymnasium vector environment or an EnvPool", onto(SimpleNamespace(num_envs=4), OBS)),
    (ConfigError, "does not declare its autoreset mode", undeclared),
    (
        ConfigError,
        "autoreset=None",
        onto(ScriptedEnv("box", 0, SCRIPTS[0]), begun().buffer.fields, autoreset="next_step"),
    ),
    (ConfigError, "place for each of the 4 environments", onto(DISABLED, OBS)),
    (ConfigError, "place for each of the 4 environments", onto(DISABLED, OBS, num_envs=3)),
    (ConfigError, "place for each of the 4 environments", onto(DISABLED, OBS, replicas=4, num_envs=2)),
    (FieldError, "declare the field `obs`", onto(DISABLED, {"reward": Field()}, num_envs=4)),
    (FieldError, "missing `obs.place`", nested_otherwise),
    (ConfigError, "call reset() first", lambda: begun().step(np.zeros(4, int))),
    (ConfigError, "`env_ids` is for EnvPool", without_a_pool),
]


@pytest.mark.parametrize(("error", "words", "call"), cases(ERRORS))
def test_what_cannot_be_recorded(error, words, call):
    refused(error, words, call)


class TestErrors:
    def test_a_reset_that_failed(self):
        """Gymnasium refuses an empty mask; nothing has happened, so the loop may continue."""
        recorder = begun()
        recorder.reset()
        with pytest.raises(ValueError, match="at least one True"):
            recorder.reset(options={"reset_mask": np.zeros(4, bool)})
        recorder.step(np.zeros(4, int))

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("other", MODES)
    def test_another_mode(self, mode, other):
        buffer = begun(other).buffer
        if mode is other:
            ReplayRecorder(make_vector("box", mode), buffer)
            return
        words = f"must have the environments' autoreset mode ... {buffer.autoreset!r}"
        refused(ConfigError, words, lambda: ReplayRecorder(make_vector("box", mode), buffer))

    def test_a_step_after_an_end_that_nobody_reset(self):
        recorder = begun("Disabled")
        recorder.reset()
        recorder.step(np.zeros(4, int))
        refused(ConfigError, "environments [1] ended ... reset_mask", lambda: recorder.step(np.zeros(4, int)))

    def test_a_step_cut_short(self):
        """Environments that went on without their step being stored are not gone on with as if nothing was."""
        recorder = ReplayRecorder.for_env(make_vector("box", "Disabled"), 100)
        recorder.reset()
        env = recorder.envs[2]
        step, env.step = env.step, None
        with pytest.raises(TypeError):
            recorder.step(np.zeros(4, int))
        env.step = step
        mask = {"reset_mask": np.array([True, False, False, False])}
        for call in (lambda: recorder.step(np.zeros(4, int)), lambda: recorder.reset(options=mask)):
            refused(ConfigError, "cut short", call)
        recorder.reset()
        recorder.step(np.zeros(4, int))
        assert recorder.ids.tolist() == [0, 1, 2, 3]


class TestResetsMidway:
    """An episode cut by a reset is neither terminated nor truncated, and nothing continues across the cut."""

    def n_step(self, vector, **options):
        return ReplayRecorder.for_env(vector, 1000, transforms=(NStep(3, 0.5),), **options)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("layout", LAYOUTS, ids=str)
    @pytest.mark.parametrize("next_obs", ["stored", "derived"])
    def test_n_step_returns_stop_there(self, mode, layout, next_obs):
        vector = make_vector("box", mode, [((6, True, False),)] * 4)
        recorder = self.n_step(vector, next_obs=next_obs, **layout)
        rng = np.random.default_rng(0)
        recorder.reset()
        for action in actions(4, 80):
            _, _, terminated, truncated, _ = recorder.step(action)
            mask = rng.random(4) < 0.15
            mask |= (terminated | truncated) & (mode is AutoresetMode.DISABLED)
            if rng.random() < 0.05:
                recorder.reset()
            elif mask.any():
                recorder.reset(options={"reset_mask": mask})
        if next_obs == "stored":
            check(recorder, vector.envs)
        self.check_n_step(recorder.buffer, vector.envs)

    def check_n_step(self, buffer, envs):
        """Each batch row's next observation is the one 1 to 3 steps on in the same episode, as many as there are."""
        batch = buffer.sample(400)
        obs, next_obs = (np.reshape(batch[name], (-1, 4)) for name in ("obs", "next_obs"))
        reached = {(env.name, *map(int, row[0][1:3])) for env in envs for row in env.log}
        expected = []
        for name, episode, t in obs[:, :3].astype(int).tolist():
            length = next(k for k in range(1, 4) if k == 3 or (name, episode, t + k) not in reached)
            expected.append([name, episode, t + length])
        np.testing.assert_array_equal(next_obs[:, :3], expected)

    def test_a_reset_in_place_of_the_automatic_one(self):
        """In NEXT_STEP mode a reset that the caller asks for leaves no step to be skipped."""
        vector = make_vector("box", AutoresetMode.NEXT_STEP)
        recorder = ReplayRecorder.for_env(vector, 1000)
        for _ in range(20):
            recorder.reset()
            recorder.step(np.zeros(4, int))
            recorder.step(np.zeros(4, int))
        check(recorder, vector.envs)

    def test_ends_the_buffer_does_not_see(self):
        """A buffer that does not declare both kinds of end is notified of them."""
        vector = make_vector("box", "Disabled", POOL_SCRIPTS)
        fields = {"obs": Field((4,)), "next_obs": Field((4,)), "reward": Field(), "terminated": Field((), bool)}
        buffer = ReplayBuffer(1000, fields, num_envs=4, transforms=(FrameStack(3),))
        play(ReplayRecorder(vector, buffer), 60)
        batch = buffer.sample(400)
        episode, t = batch.obs[..., 1], batch.obs[..., 2]
        assert (episode == episode[:, -1:]).all()
        np.testing.assert_array_equal(t, np.maximum(t[:, -1:] + np.arange(-2, 1), 0))

    def test_another_recorder_on_the_same_buffer(self):
        vector = make_vector("box", "SameStep", [((6, True, False),)] * 4)
        recorder = self.n_step(vector)
        for _ in range(10):
            recorder.reset()
            recorder.step(np.zeros(4, int))
            recorder = ReplayRecorder(vector, recorder.buffer)
        self.check_n_step(recorder.buffer, vector.envs)


class Halves(gym.Env):
    """Half a step further each time; resets return whole numbers as integers."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, nest=lambda obs: obs, first=0):
        self.nest, self.first = nest, first
        space = nest(gym.spaces.Box(-10, 10, (2,), np.float32))
        kind = {dict: gym.spaces.Dict, tuple: gym.spaces.Tuple}.get(type(space))
        self.observation_space = space if kind is None else kind(space)

    def reset(self, *, seed=None, options=None):
        first = np.array([self.first, self.first])
        self.obs = first.astype(float)
        return self.nest(first), {}

    def step(self, action):
        self.obs += (0.25, 0.5)
        return self.nest(self.obs.copy()), 1.0, False, bool(self.obs[0] == 1.0), {}


class VectorHalves(gym.vector.VectorEnv):
    """Two copies, which stack what they observe as it comes."""

    def __init__(self, nest):
        self.envs, self.num_envs = [Halves(nest), Halves(nest)], 2
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = self.envs[0].observation_space, Halves.action_space
        self.observation_space = self.action_space = None  # of both copies: not used

    def reset(self, *, seed=None, options=None):
        obs, _ = zip(*(env.reset() for env in self.envs), strict=True)
        return stack(obs), {}

    def step(self, actions):
        obs, *outcome, _ = zip(*map(Halves.step, self.envs, actions), strict=True)
        return stack(obs), *map(np.array, outcome), {}


@pytest.mark.parametrize("nest", [lambda obs: obs, lambda obs: {"x": obs}, lambda obs: (obs, obs)])
@pytest.mark.parametrize("make", [Halves, VectorHalves])
def test_obs_after_integer_reset_keeps_fractions(nest, make):
    recorder = ReplayRecorder.for_env(make(nest), 100, reset_ended=True)
    recorder.reset()
    for _ in range(10):
        recorder.step(np.zeros(2, int) if make is VectorHalves else 0)
    stored = recorder.buffer.get(np.arange(len(recorder.buffer)))
    envs = 2 if make is VectorHalves else 1
    quarters = np.repeat(np.array([0, 1, 2, 3] * 3)[:10], envs) / 4
    for name, shift in (("obs", 0.0), ("next_obs", 0.25)):
        leaves = []
        map_leaves(leaves.append, stored[name])
        for leaf in leaves:
            np.testing.assert_array_equal(leaf[:, 0], quarters + shift)
            np.testing.assert_array_equal(leaf[:, 1], 2 * (quarters + shift))


def test_obs_from_pool_with_integer_resets_keeps_fractions():
    class Pool(ScriptedPool):
        def result(self, rows):
            halves = [(i, obs // 2 if self.envs[i].t == 0 else obs / 2, *outcome) for i, obs, *outcome in rows]
            obs, *others = super().result(halves)
            return obs.astype(int) if (obs == np.rint(obs)).all() else obs, *others

    pool = Pool("box", [((4, True, False),)] * 2, 2, lambda under_way, count: under_way)
    recorder = ReplayRecorder.for_env(pool, 100)
    recorder.reset()
    for _ in range(3):
        recorder.step(np.zeros(2, int))
    stored = recorder.buffer.get(np.arange(6))
    assert stored["obs"][:, 2].tolist() == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert stored["next_obs"][:, 2].tolist() == [0.5, 0.5, 1.0, 1.0, 1.5, 1.5]


def test_obs_and_next_obs_have_their_fields_dtypes():
    fields = {"obs": Field((2,), np.float32), "next_obs": Field((2,), np.float64)}
    recorder = ReplayRecorder(Halves(first=1e-12), ReplayBuffer(10, fields))
    recorder.reset()
    recorder.step(0)
    assert recorder.buffer.get([0])["next_obs"].tolist() == [[0.25 + 1e-12, 0.5 + 1e-12]]


def test_reset_obs_that_does_not_fit_is_refused():
    recorder = ReplayRecorder(Halves(first=0.5), ReplayBuffer(10, {"obs": Field((2,), np.int32)}))
    with pytest.raises(DtypeError):
        recorder.reset()
