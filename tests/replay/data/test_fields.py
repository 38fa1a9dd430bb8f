"""Fields by hand and from Gymnasium spaces; what they cost; how nested ones go in and come out."""

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from replaylab.errors import ConfigError, FieldError
from replaylab.replay import Field, ReplayBuffer
from tests.oracle import flatten
from tests.replay.collect.scripted_env import OBSERVATIONS, ScriptedEnv, make_vector

DTYPES = [
    np.bool_,
    np.uint8,
    np.int8,
    np.int16,
    np.uint16,
    np.int32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
]


class TestField:
    def test_defaults(self):
        assert Field() == Field((), np.float32)
        assert Field(3) == Field((3,), "float32")
        assert hash(Field(3)) == hash(Field((3,)))

    def test_is_frozen(self):
        with pytest.raises(AttributeError):
            Field().shape = (2,)

    @pytest.mark.parametrize("shape", [(0,), (3, -1), -2, ("a",), (2.5,)])
    def test_lengths_are_positive(self, shape):
        with pytest.raises(FieldError, match="a field's shape must be whole numbers of at least 1, but got"):
            Field(shape)

    @pytest.mark.parametrize("dtype", [object, "U5", "S3", "datetime64[s]", [("a", int)], ">f4"])
    def test_only_plain_native_numbers(self, dtype):
        message = "a field's dtype must be a native boolean, integer, float or complex one, but got"
        with pytest.raises(FieldError, match=message):
            Field((), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 1)])
def test_every_dtype_comes_back_bit_for_bit(dtype, shape):
    buffer = ReplayBuffer(5, {"x": Field(shape, dtype), "pad": Field((), np.uint8)}, seed=0)
    rng = np.random.default_rng(0)
    count = 9 * int(np.prod(shape))
    bits = (
        rng.integers(0, 2, count).astype(bool)
        if dtype == np.bool_
        else np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), dtype)
    )
    x = bits.reshape(9, *shape)
    buffer.extend(x=x, pad=np.arange(9, dtype=np.uint8))
    batch = buffer.sample(64)
    assert batch.x.dtype == buffer.columns["x"].dtype == dtype
    assert batch.x.tobytes() == x[batch.id].tobytes()
    assert batch.pad.tolist() == batch.id.tolist()


def test_inputs_may_be_lists_strided_or_foreign_ordered():
    buffer = ReplayBuffer(20, {"x": Field((2, 3), np.float64)})
    x = np.arange(24.0).reshape(4, 2, 3)
    for values in [
        x.tolist(),
        np.asfortranarray(x),
        np.repeat(x, 2, axis=0)[::2],
        x[::-1][::-1],
        x.astype(">f8"),
        x.astype(np.float32),
    ]:
        ids = buffer.extend(x=values)
        np.testing.assert_array_equal(buffer.columns["x"][ids % 20], x)


class TestValuesThatFitAreTaken:
    """Whatever loses nothing but a float's last digits is stored; the rest is in `test_bad_input.py`."""

    @pytest.mark.parametrize(
        ("dtype", "values", "stored"),
        [
            (np.uint8, [0, 255, 7], [0, 255, 7]),
            (np.uint8, np.array([0, 255, 7], np.int64), [0, 255, 7]),
            (np.int8, np.array([127, 0, 1], np.uint64), [127, 0, 1]),
            (np.int64, [True, False, True], [1, 0, 1]),
            (np.float32, [1, 2, 3], [1, 2, 3]),
            (np.float32, [True, 0.5, 1e-300], [1, 0.5, 0]),
            (np.float32, np.array([0.1, 0.2, 0.3]), np.float32([0.1, 0.2, 0.3])),
            (np.float16, [np.inf, -np.inf, 65504], [np.inf, -np.inf, 65504]),
            (np.float32, [np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf]),
            (np.complex64, [1, 2.5, 1j], [1, 2.5, 1j]),
        ],
    )
    def test_in_both_ways(self, dtype, values, stored):
        buffer = ReplayBuffer(3, {"x": Field((), dtype)})
        buffer.extend(x=values)
        np.testing.assert_array_equal(buffer.columns["x"], np.array(stored, dtype))
        for value in values:
            buffer.add(x=value)
        np.testing.assert_array_equal(buffer.columns["x"], np.array(stored, dtype))


class TestColumns:
    def make(self):
        buffer = ReplayBuffer(
            5, {"obs": {"a": Field((2,), np.uint8), "b": (Field(), Field())}, "x": Field((), np.int64)}
        )
        buffer.extend(
            obs={
                "a": np.arange(14, dtype=np.uint8).reshape(7, 2),
                "b": (np.zeros(7, np.float32), np.ones(7, np.float32)),
            },
            x=np.arange(7),
        )
        return buffer

    def test_they_are_views_of_the_rows(self):
        buffer = self.make()
        x = buffer.columns["x"]
        assert x.tolist() == [5, 6, 2, 3, 4]
        buffer.add(obs={"a": np.zeros(2, np.uint8), "b": (0.0, 0.0)}, x=99)
        assert x.tolist() == [5, 6, 99, 3, 4]

    def test_they_are_nested_as_declared(self):
        columns = self.make().columns
        assert columns["obs"]["a"].shape == (5, 2)
        assert isinstance(columns["obs"]["b"], tuple)
        assert columns["obs"]["b"][1].tolist() == [1] * 5

    def test_they_are_read_only(self):
        for column in flatten(self.make().columns).values():
            with pytest.raises(ValueError, match="read-only"):
                column[...] = 0
            with pytest.raises(ValueError, match=r"WRITEABLE|writeable"):
                column.flags.writeable = True

    def test_they_keep_the_memory_alive(self):
        columns = flatten(self.make().columns)
        assert columns["x",].tolist() == [5, 6, 2, 3, 4]


class TestMemory:
    def test_nbytes_counts_at_least_the_rows(self):
        buffer = ReplayBuffer(1000, {"image": Field((84, 84), np.uint8), "reward": Field()}, replicas=3)
        row = 84 * 84 + 4
        assert 3000 * row <= buffer.nbytes <= 3000 * (row + 64) + 100_000

    @pytest.mark.no_sanitizer
    @pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
    @pytest.mark.parametrize("sampler", ["Uniform()", "Prioritized()"])
    def test_nbytes_is_what_the_process_grows_by(self, sampler):
        """Measured in a fresh process: rows, priorities and all, within 5 % and a megabyte."""
        code = f"""
import resource
from pathlib import Path
import numpy as np
from replaylab.replay import Field, Prioritized, ReplayBuffer, Uniform

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

x = np.zeros((1000, 5), np.float32)
ReplayBuffer(10, {{"x": Field((5,))}}, sampler={sampler}).extend(x=x)
before = resident()
buffer = ReplayBuffer(1_500_000, {{"x": Field((5,))}}, sampler={sampler})
for _ in range(1500):
    buffer.extend(x=x)
print(resident() - before, buffer.nbytes)
"""
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        grown, stated = map(int, run.stdout.split())
        assert abs(grown - stated) < 0.05 * stated + 2**20

    def test_it_is_there_before_anything_is_stored(self):
        buffer = ReplayBuffer(1000, {"x": Field((8,))})
        before = buffer.nbytes
        buffer.extend(x=np.zeros((2500, 8), np.float32))
        assert buffer.nbytes == before


def space_env(obs, action):
    env = ScriptedEnv("box", 0, [(1, True, False)])
    env.observation_space, env.action_space = obs, action
    return env


class TestForEnv:
    @pytest.mark.parametrize(
        ("space", "expected"),
        [
            (spaces.Box(0, 255, (4, 5, 3), np.uint8), Field((4, 5, 3), np.uint8)),
            (spaces.Box(-1, 1, (2,), np.float64), Field((2,), np.float64)),
            (spaces.Box(-1, 1, ()), Field()),
            (spaces.Discrete(7), Field((), np.int64)),
            (spaces.MultiDiscrete([3, 4]), Field((2,), np.int64)),
            (spaces.MultiDiscrete([[3, 4], [5, 6]]), Field((2, 2), np.int64)),
            (spaces.MultiBinary((2, 3)), Field((2, 3), np.int8)),
            (
                spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
                {"b": Field((), np.int64), "a": Field(2)},
            ),
            (
                spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))),
                (Field((), np.int64), Field(3, np.int8)),
            ),
        ],
        ids=repr,
    )
    def test_spaces(self, space, expected):
        buffer = ReplayBuffer.for_env(space_env(space, space), 10)
        assert buffer.fields["obs"] == buffer.fields["next_obs"] == buffer.fields["action"] == expected
        assert buffer.fields["reward"] == Field((), np.float32)
        assert buffer.fields["terminated"] == buffer.fields["truncated"] == Field((), np.bool_)
        assert (buffer.num_envs, buffer.replicas) == (None, None)

    @pytest.mark.parametrize("seed", range(5))
    def test_samples_of_deeply_nested_spaces_come_back(self, seed):
        space = spaces.Dict(
            {
                "camera": spaces.Tuple(
                    (spaces.Box(0, 255, (3, 3), np.uint8), spaces.Dict({"gain": spaces.Box(0, 1, ())}))
                ),
                "touch": spaces.MultiBinary(5),
                "mode": spaces.Tuple((spaces.Discrete(4, start=-2), spaces.MultiDiscrete([2, 9]))),
            }
        )
        space.seed(seed)
        buffer = ReplayBuffer.for_env(space_env(space, space), 50, seed=seed)
        steps = [{"obs": space.sample(), "action": space.sample(), "next_obs": space.sample()} for _ in range(30)]
        for step in steps:
            buffer.add(**step, reward=0.0, terminated=False, truncated=False)
        batch = buffer.sample(40)
        for name in steps[0]:
            for path, leaf in flatten(batch[name]).items():
                expected = np.stack([flatten(steps[i][name])[path] for i in batch.id])
                assert leaf.dtype == expected.dtype
                np.testing.assert_array_equal(leaf, expected)

    def test_extra_fields(self):
        buffer = ReplayBuffer.for_env(ScriptedEnv("box", 0, [(1, True, False)]), 10, extra_fields={"log_prob": Field()})
        assert buffer.fields["log_prob"] == Field()

    def test_a_space_without_a_fixed_size(self):
        env = space_env(spaces.Dict({"words": spaces.Text(5)}), spaces.Discrete(2))
        with pytest.raises(FieldError, match=r"field `obs\.words` has the space Text.*no fixed shape and dtype"):
            ReplayBuffer.for_env(env, 10)

    @pytest.mark.parametrize("kind", OBSERVATIONS)
    def test_replicas(self, kind):
        vector = make_vector(kind, "NextStep")
        for replicas, num_envs in [(None, 4), (4, None), (2, 2), (1, 4)]:
            buffer = ReplayBuffer.for_env(vector, 10, replicas=replicas)
            assert (buffer.replicas, buffer.num_envs) == (replicas, num_envs)
        with pytest.raises(ValueError, match="3"):
            ReplayBuffer.for_env(vector, 10, replicas=3)

    def test_a_vector_environment_that_hides_its_mode(self):
        vector = make_vector("box", "NextStep")
        vector.metadata = {}
        with pytest.raises(ConfigError, match="does not declare its autoreset mode"):
            ReplayBuffer.for_env(vector, 10)

    def test_a_registered_environment(self):
        buffer = ReplayBuffer.for_env(gym.make("CartPole-v1"), 10)
        assert buffer.fields["obs"] == Field((4,))
        assert buffer.fields["action"] == Field((), np.int64)
