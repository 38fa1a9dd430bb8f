"""The training loop's state in a snapshot: what can be stored returns to the last bit, and nothing else is stored."""

# ruff: noqa: NPY002 - the state of NumPy's global generator is what is tested

import json
import pickle
import random
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaylab.errors import ConfigError, MissingExtraError, SnapshotError
from replaylab.files.bundle import reading, seal
from replaylab.replay import Field, Priorities, ReplayBuffer
from replaylab.replay.data import loop_state
from tests.fuzz import mutate

torch = pytest.importorskip("torch")

ARRAY_DTYPES = ("?", "i1", ">i4", "u8", "f2", "f4", "f8", "c16", "M8[ns]", "m8[s]", "S3")
TENSOR_DTYPES = ("float32", "float64", "bfloat16", "float8_e5m2", "complex64", "int64", "uint8", "bool")
SHAPES = ((), (0,), (3,), (2, 3), (0, 1), (2, 1, 3))


def bits(seed, shape, itemsize, truths):
    """Bytes of random values; of bools, 0 and 1."""
    values = np.random.default_rng(seed).integers(0, 2 if truths else 256, (*shape, itemsize), np.uint8)
    return values if values.size else np.zeros(values.shape, np.uint8)


def array(dtype, shape, seed):
    return np.ndarray(shape, dtype, bits(seed, shape, np.dtype(dtype).itemsize, dtype == "?").tobytes() or None)


def tensor(name, shape, seed):
    dtype = getattr(torch, name)
    values = torch.from_numpy(bits(seed, shape, dtype.itemsize, name == "bool"))
    return values.clone(memory_format=torch.contiguous_format).view(dtype).squeeze(-1)


SEEDS = st.integers(0, 2**32 - 1)
ARRAYS = st.builds(array, st.sampled_from(ARRAY_DTYPES), st.sampled_from(SHAPES), SEEDS)
TENSORS = st.builds(tensor, st.sampled_from(TENSOR_DTYPES), st.sampled_from(SHAPES), SEEDS)
LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.text().map(np.array)),
    *(ARRAYS, ARRAYS.map(np.transpose), ARRAYS.filter(lambda values: values.size).map(lambda values: values.flat[0])),
    *(TENSORS, TENSORS.map(lambda values: values.T if values.ndim == 2 else values)),
)
KEYS = st.one_of(st.text(), st.integers())
VALUES = st.recursive(
    LEAVES,
    lambda child: st.one_of(
        st.lists(child, max_size=3), st.tuples(child, child), st.dictionaries(KEYS, child, max_size=3)
    ),
    max_leaves=6,
)


def fresh(tensor):
    """A copy; of an empty tensor from NumPy, `view` refuses the strides."""
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format)


def same(state, other):
    """Whether two values have the same types and bits, throughout."""
    if type(state) is not type(other):
        return False
    if isinstance(state, dict):
        return list(state) == list(other) and all(same(state[key], other[key]) for key in state)
    if isinstance(state, list | tuple):
        return len(state) == len(other) and all(map(same, state, other))
    if isinstance(state, torch.Tensor):
        as_bytes = [fresh(value).view(torch.uint8) for value in (state, other)]
        return (state.dtype, state.shape) == (other.dtype, other.shape) and torch.equal(*as_bytes)
    if isinstance(state, np.ndarray | np.generic):
        return (state.dtype, state.shape, state.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return repr(state) == repr(other)


def buffer():
    filled = ReplayBuffer(9, {"x": Field()}, seed=0)
    filled.extend(x=np.arange(12.0))
    return filled


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(state=st.dictionaries(KEYS, VALUES, max_size=3))
def test_a_nested_state_returns_to_the_last_bit(state):
    value, arrays = loop_state.written(state)
    assert same(loop_state.read(json.loads(json.dumps(value)), {**arrays, "replica0.next_id": np.zeros(1)}), state)


def learned():
    """A network, its optimizer after one step, and every kind of random state."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(network.parameters(), amsgrad=True)
    network(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return network, optimizer


def test_networks_and_random_states_continue(tmp_path):
    network, optimizer = learned()
    state = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": random.getstate(),
        "global": np.random.get_state(),
        "generator": np.random.default_rng(3).bit_generator.state,
        "torch": torch.get_rng_state(),
    }
    buffer().save(tmp_path, state=state)
    loaded = ReplayBuffer.load(tmp_path).state
    assert same(loaded["optimizer"], state["optimizer"])
    random.setstate(loaded["random"])
    np.random.set_state(loaded["global"])
    torch.set_rng_state(loaded["torch"])
    draws = random.random(), np.random.random(), torch.rand(())
    random.setstate(state["random"])
    np.random.set_state(state["global"])
    torch.set_rng_state(state["torch"])
    assert draws == (random.random(), np.random.random(), torch.rand(()))
    assert loaded["generator"] == state["generator"]
    others = learned()
    for part, name in zip(others, ("network", "optimizer"), strict=True):
        part.load_state_dict(loaded[name])
    assert same(dict(others[0].state_dict()), dict(network.state_dict()))
    assert same(others[1].state_dict(), optimizer.state_dict())


@pytest.mark.parametrize("kind", [ReplayBuffer, Priorities])
def test_load_and_restore_give_the_state_back(tmp_path, kind):
    saved = buffer() if kind is ReplayBuffer else Priorities(9)
    assert saved.state is None
    saved.save(tmp_path, state={"step": 7})
    assert saved.state is None
    loaded = kind.load(tmp_path)
    assert loaded.state == {"step": 7}
    saved.restore(tmp_path)
    assert saved.state == {"step": 7}
    assert pickle.loads(pickle.dumps(loaded)).state is None
    assert deepcopy(loaded).state is None


def test_each_save_replaces_the_state(tmp_path):
    saved = buffer()
    for state in ({"weights": np.ones(3)}, {}, None):
        saved.save(tmp_path, state=state)
        assert same(ReplayBuffer.load(tmp_path).state, state)


def test_numpys_whole_numbers_are_keys(tmp_path):
    buffer().save(tmp_path, state={"visits": {np.int64(3): 2}})
    assert same(ReplayBuffer.load(tmp_path).state, {"visits": {3: 2}})


def manifest_of(folder, change):
    """Change the manifest's `about` and seal it again."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest["about"])
    file.write_text(json.dumps(manifest | {"crc32": seal(manifest)}))


def test_snapshots_from_before_states_load(tmp_path):
    buffer().save(tmp_path)
    manifest_of(tmp_path, lambda about: about.pop("loop"))
    assert ReplayBuffer.load(tmp_path).state is None


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [{"b": torch.nn.Linear(1, 1)}]}, r"`state\['a'\]\[0\]\['b'\]` must be .*; pass its `state_dict\(\)`"),
        ({"a": np.random.default_rng()}, r"`state\['a'\]` must be .*; pass its `bit_generator.state`"),
        ({"a": random.Random()}, r"; pass its `getstate\(\)`"),
        ({"a": torch.Generator()}, r"; pass its `get_state\(\)`"),
        ({"a": (1, {2})}, r"`state\['a'\]\[1\]` must be .*but got \{2\}; convert it"),
        ({"a": np.array([None])}, r"`state\['a'\]` must be an array of numbers"),
        ({"a": np.zeros(2, "i4, f4")}, "must be an array of numbers"),
        ({"a": np.ma.masked_array([1.0])}, "without a mask"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "must be a dense tensor"),
        ({"a": torch.empty(2, device="meta")}, "must be a dense tensor"),
        ({"a": torch.zeros(2, dtype=torch.uint8).view(torch.bits8)}, "must be a dense tensor"),
        ({"a": {1.5: 2}}, r"a key of state\['a'\]` must be text or a whole number, but got 1.5"),
        ({True: 2}, "a key of state` must be text or a whole number, but got True"),
        ([1], r"`state` must be a mapping of names to values, but got \[1\]"),
    ],
    ids=range(14),
)
def test_invalid_values_are_named_and_change_nothing(tmp_path, state, message):
    saved = buffer()
    saved.save(tmp_path, state={"step": 7})
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=message):
        saved.save(tmp_path, state=state)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_state_that_contains_itself_is_refused(tmp_path):
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ConfigError, match="must be nested at most 64 levels deep"):
        buffer().save(tmp_path, state={"cycle": cycle})


def test_tensors_without_pytorch_name_the_extra(tmp_path, monkeypatch):
    buffer().save(tmp_path, state={"weights": torch.ones(2)})
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'pip install "replaylab\[torch\]"'):
        ReplayBuffer.load(tmp_path)


def test_a_damaged_state_is_refused(tmp_path):
    """Well sealed, but with any value another, gone, or moved: it is refused, or read as other plain data."""
    state = {
        "network": {"weight": torch.ones(2, 2), "half": torch.ones(3, dtype=torch.bfloat16)},
        "items": {1: (np.arange(3), np.float32(1.0)), "x": [b"bytes", 2**70, float("nan")]},
    }
    value, arrays = loop_state.written(state)
    rng, refused = random.Random(0), 0
    for _ in range(2_000):
        changed = {name: array.copy() for name, array in arrays.items()}
        if rng.random() < 0.3:
            name = rng.choice(list(changed))
            changed[name] = np.resize(changed[name], rng.choice([(), (0,), (1,), (2, 3), (2, 2), (0, 10**12)]))
        try:
            json.dumps(mutated := mutate.json_value(rng, {"loop": deepcopy(value)}))
            with reading(tmp_path):
                buffer_state = loop_state.read(mutated.get("loop"), changed)
        except SnapshotError:
            refused += 1
            continue
        repr(buffer_state)
    assert refused > 500


@pytest.mark.parametrize(
    "loop",
    [
        *({"tensor": "loop.0", "dtype": dtype} for dtype in ("quint8", "bits8", "uint4", "nn", "float64", 3)),
        *({"array": "loop.1"}, {"array": "replica0.next_id"}, {"scalar": "loop.0"}, {"other": "loop.0"}, {}),
        [{"array": "loop.0"}, {"array": "loop.0"}],  # many uses of a large array would fill the memory
        {"items": [[[], 1]]},
    ],
    ids=str,
)
def test_snapshots_with_another_state_are_refused(tmp_path, loop):
    buffer().save(tmp_path, state={"weights": torch.arange(6, dtype=torch.uint8).reshape(2, 3)})
    manifest_of(tmp_path, lambda about: about.update(loop=loop))
    with pytest.raises(SnapshotError, match="is not a snapshot that this library wrote"):
        ReplayBuffer.load(tmp_path)
