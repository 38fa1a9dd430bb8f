"""Messages about fields and snapshots name the field, the option or the environment's part that is wrong."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab import Field, ReplayBuffer
from replaylab.errors import ConfigError, DtypeError, FieldError, SnapshotError
from replaylab.replay import FrameStack, NStep, Prioritized, ReplayRecorder, ReplayStream
from tests.replay.buffers import transition

FIELDS = transition(Field((2,)))


def saved(folder, **options):
    buffer = ReplayBuffer(10, FIELDS, seed=0, **options)
    flags = np.arange(6) == 3
    obs = np.ones((6, 2))
    buffer.extend(obs=obs, next_obs=obs, reward=np.arange(6.0), terminated=flags, truncated=np.zeros(6, bool))
    buffer.save(folder)
    return buffer


class TestOptionsOfALoad:
    @pytest.mark.parametrize("transform", [FrameStack(3), NStep(3)], ids=repr)
    def test_other_transforms_than_those_saved(self, tmp_path, transform):
        saved(tmp_path)
        with pytest.raises(SnapshotError) as error:
            ReplayBuffer.load(tmp_path, transforms=[transform])
        message = str(error.value)
        assert message.startswith(f"the snapshot was saved with transforms=(), but transforms=({transform!r},) need")
        assert "leave `transforms` out" in message
        assert "ReplayBuffer.from_episodes(" in message

    def test_what_it_advises(self, tmp_path):
        saved(tmp_path)
        loaded = ReplayBuffer.load(tmp_path)
        resized = ReplayBuffer.from_episodes(loaded.episodes(), 20, fields=FIELDS, transforms=[NStep(3)])
        assert (len(resized), resized.capacity) == (6, 20)

    def test_transforms_that_need_nothing_more_are_taken(self, tmp_path):
        saved(tmp_path, transforms=[NStep(3)])
        assert ReplayBuffer.load(tmp_path, transforms=[NStep(2)]).transforms == (NStep(2),)

    def test_a_restore_into_another_capacity_says_how_to_resize(self, tmp_path):
        saved(tmp_path)
        with pytest.raises(SnapshotError, match=r"capacity=10, but this one has 20; .*episodes\(\), 20"):
            ReplayBuffer(20, FIELDS).restore(tmp_path)


class TestFields:
    def test_text_in_episodes(self):
        episode = {"obs": {"words": np.array(["a", "b", "c"])}, "reward": np.ones(2), "terminated": True}
        with pytest.raises(FieldError, match=r"field `obs\.words`: .*<U1"):
            ReplayBuffer.from_episodes([episode])

    def test_text_in_a_stream(self):
        with pytest.raises(FieldError, match=r"field `obs\.1\.words`"):
            next(iter(ReplayStream([{"obs": (1.0, {"words": "a"})}], 2, batch_size=1)))

    def test_an_empty_box(self):
        env = Plain()
        env.observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (0,))})
        with pytest.raises(FieldError, match=r"field `obs\.b`: .*\(0,\)"):
            ReplayBuffer.for_env(env, 10)

    def test_spaces_of_several_agents(self):
        class Parallel:
            def observation_space(self, agent): ...

            def action_space(self, agent): ...

        with pytest.raises(ConfigError, match=r"`env`.* one agent.*`observation_space` .*a function.*PettingZoo"):
            ReplayBuffer.for_env(Parallel(), 10)


class Plain(gym.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)


class WithoutFinalObs(gym.vector.VectorEnv):
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs, single_observation_space, single_action_space = 2, Plain.observation_space, Plain.action_space
    observation_space = gym.vector.utils.batch_space(Plain.observation_space, 2)
    action_space = gym.vector.utils.batch_space(Plain.action_space, 2)

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 2), np.float32), {}

    def step(self, actions):
        return np.zeros((2, 2), np.float32), np.zeros(2), np.array([True, False]), np.zeros(2, bool), {}


def test_a_recorder_whose_environments_give_no_final_observation():
    env = WithoutFinalObs()
    recorder = ReplayRecorder(env, ReplayBuffer.for_env(env, 10))
    recorder.reset()
    with pytest.raises(FieldError, match=r"Recorder, `step` of the environments must return infos\["):
        recorder.step(np.zeros(2, int))


class TestBfloat16:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def values(self, kind=None):
        return np.array([1.5, -2.25, 3e38], self.ml_dtypes.bfloat16 if kind is None else kind)

    def test_it_is_stored_in_float32_without_loss(self):
        buffer = ReplayBuffer(4, {"x": Field((3,)), "y": Field((3,), np.float64)})
        for value in (self.values(), self.values().astype(np.float32)):
            buffer.add(x=value, y=value)
        stored = buffer.get([0, 1])
        for name in "xy":
            np.testing.assert_array_equal(stored[name][0], self.values().astype(np.float32))
            np.testing.assert_array_equal(stored[name][0], stored[name][1])

    def test_whole_numbers_still_refuse_it(self):
        with pytest.raises(DtypeError, match="stores int64, but got bfloat16, and int64 cannot hold"):
            ReplayBuffer(4, {"x": Field((3,), np.int64)}).add(x=self.values())

    def test_episodes_of_it_are_stored_as_float32(self):
        episode = {"obs": np.zeros((3, 2), self.ml_dtypes.bfloat16), "reward": np.ones(2), "terminated": True}
        assert ReplayBuffer.from_episodes([episode]).fields["obs"] == Field((2,), np.float32)

    def test_a_field_of_it_is_refused_with_what_to_do(self):
        torch = pytest.importorskip("torch")
        for dtype in (self.ml_dtypes.bfloat16, np.dtype(self.ml_dtypes.bfloat16), torch.bfloat16):
            with pytest.raises(FieldError, match=r"bfloat16; .*np\.float32, which holds every bfloat16 exactly"):
                Field((2,), dtype)


def test_bfloat16_of_jax_and_torch():
    jnp, torch = pytest.importorskip("jax.numpy"), pytest.importorskip("torch")
    for make in (lambda x: jnp.array(x, jnp.bfloat16), lambda x: torch.tensor(x, dtype=torch.bfloat16)):
        buffer = ReplayBuffer(4, {"x": Field((2,))}, sampler=Prioritized(beta=0.4))
        buffer.add(x=make([1.5, 2.0]))
        assert buffer.get([0])["x"].tolist() == [[1.5, 2.0]]
        assert buffer.update_priorities([0], make([1.5])) == 1
