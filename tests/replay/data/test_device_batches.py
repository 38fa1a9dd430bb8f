"""Batches put on a device ahead, and feedback that comes from one."""

import sys
import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError, DtypeError, MissingExtraError
from replaylab.replay import CustomSampler, Field, MixedReplay, Prioritized, ReplayBuffer
from replaylab.replay.data import frameworks

FIELDS = {"x": Field((300,)), "pair": {"a": Field((), np.int64), "b": Field((2,), np.uint8)}}


@dataclass(frozen=True)
class Fed(CustomSampler):
    """By priority."""

    wants_feedback = True

    def distribution(self, view, batch_size):
        wanted = np.abs(view.priorities) + 1e-3
        return wanted / wanted.sum()


def make(sampler=None, replicas=None):
    sampler = Prioritized(alpha=1.0, beta=0.5) if sampler is None else sampler
    buffer = ReplayBuffer(30, FIELDS, sampler=sampler, replicas=replicas, seed=5)
    lead = (40,) if replicas is None else (replicas, 40)
    x = np.random.default_rng(0).random((*lead, 300), np.float32)
    buffer.extend(x=x, pair={"a": np.ones(lead, np.int64), "b": np.ones((*lead, 2), np.uint8)})
    return buffer


def devices():
    device = jax.devices()[0]
    return ["jax", device, jax.sharding.SingleDeviceSharding(device)]


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("which", range(3))
def test_the_same_batches_as_arrays_of_jax(which, ahead):
    device, plain, buffer = devices()[which], make(), make()
    expected = list(plain.batches(8, prefetch=ahead, total=6))
    batches = list(buffer.batches(8, prefetch=ahead, total=6, device=device))
    buffer.extend(x=np.zeros((30, 300)), pair={"a": np.zeros(30, np.int64), "b": np.zeros((30, 2), np.uint8)})
    for batch, same in zip(batches, expected, strict=True):
        for leaf in (batch.x, batch.weight, batch.pair["a"], batch.pair["b"]):
            assert isinstance(leaf, jax.Array)
            assert leaf.devices() == {jax.devices()[0]}
        assert isinstance(batch.id, np.ndarray)
        assert isinstance(batch.probability, np.ndarray)
        for name in ("x", "weight", "id", "probability"):
            np.testing.assert_array_equal(batch[name], same[name])
        np.testing.assert_array_equal(batch.pair["b"], same.pair["b"])


def test_they_are_put_there_by_the_background_thread(monkeypatch):
    put, threads = jax.device_put, []

    def watched(*args, **options):
        threads.append(threading.current_thread().name)
        return put(*args, **options)

    monkeypatch.setattr(jax, "device_put", watched)
    batches = make().batches(8, prefetch=2, device=jax.devices()[0])
    next(batches)
    batches.close()
    assert threads
    assert all(name.startswith("replaylab-prefetch") for name in threads)


def test_compiled_functions_take_them():
    batch = next(make().batches(8, prefetch=1, device="jax"))
    assert float(jax.jit(lambda batch: (batch.weight * batch.x.sum(1)).sum())(batch)) > 0


def test_tensors_of_pytorch():
    for device in ("cpu", torch.device("cpu"), "meta"):
        batch = next(make().batches(8, prefetch=1, device=device))
        assert batch.x.device.type == torch.device(device).type
        assert batch.id.device.type == "cpu"


@pytest.mark.parametrize("device", [3, 2.5, [], {}, "gpu of mine", "", True, object(), jnp.zeros(1), torch.zeros(1)])
def test_what_is_no_device_is_refused_at_once(device):
    with pytest.raises(ConfigError, match=r'`device` must be "jax", a jax\.Device'):
        make().batches(8, device=device)


def test_pinned_memory_is_not_for_jax():
    with pytest.raises(ConfigError, match="`pin_memory` is for PyTorch"):
        make().batches(8, pin_memory=True, device="jax")


@pytest.mark.parametrize(("device", "library"), [("jax", "jax"), ("cpu", "torch")])
def test_a_library_that_is_missing_is_reported_at_once(device, library, monkeypatch):
    monkeypatch.setattr(frameworks, "_jax", frameworks._jax.__wrapped__)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "replaylab\[{library}\]"'):
        make().batches(8, device=device)


class OnDevice:
    """An array that counts how often it is copied to the host."""

    def __init__(self, values):
        self.values, self.copies = values, 0

    def __array__(self, dtype=None, copy=None):
        self.copies += 1
        return np.array(self.values, dtype)


class TestFeedback:
    @pytest.mark.parametrize("name", ["td_error", "priority"])
    @pytest.mark.parametrize("sampler", [None, Fed()], ids=["core", "custom"])
    @pytest.mark.parametrize("replicas", [None, 2])
    def test_is_copied_once(self, name, sampler, replicas):
        plain, buffer = make(sampler, replicas), make(sampler, replicas)
        batch = plain.sample(8)
        values = np.linspace(0.5, 2.0, batch.id.size, dtype=np.float32).reshape(batch.id.shape)
        on_device = OnDevice(values)
        assert buffer.update_priorities(buffer.sample(8).id, **{name: on_device}) == batch.id.size
        assert on_device.copies == 1
        plain.update_priorities(batch.id, **{name: values})
        np.testing.assert_array_equal(plain.sample(8).id, buffer.sample(8).id)

    def test_is_copied_once_for_several_buffers(self):
        mixed = MixedReplay([make(), make()])
        batch, on_device = mixed.sample(8), OnDevice(np.ones(8))
        assert mixed.update_priorities(batch, on_device) == 8
        assert on_device.copies == 1

    def test_of_jax_is_asked_for_its_numbers_once(self, monkeypatch):
        kind, asked = type(jnp.zeros(1)), []
        numbers = kind.__array__
        monkeypatch.setattr(kind, "__array__", lambda self, *a, **k: asked.append(1) or numbers(self, *a, **k))
        buffer = make(Fed())
        batch = next(buffer.batches(8, device="jax"))
        td_error = jax.jit(lambda batch: batch.weight * 2.0)(batch)
        assert buffer.update_priorities(batch.id, td_error) == 8
        assert len(asked) <= 1  # none where NumPy reads the memory itself

    def test_of_pytorch_needs_no_detaching(self):
        buffer, plain = make(), make()
        batch = buffer.sample(8).torch()
        td_error = torch.ones(8, requires_grad=True) * batch.weight
        assert buffer.update_priorities(batch.id, td_error) == 8
        plain.update_priorities(plain.sample(8).id, td_error.detach().numpy())
        np.testing.assert_array_equal(plain.sample(8).id, buffer.sample(8).id)

    @pytest.mark.parametrize(
        ("tensor", "advice"),
        [
            (torch.zeros(2, requires_grad=True), r"\.detach\(\)"),
            (torch.zeros(2, device="meta"), r"\.cpu\(\)"),
            (torch.zeros(2).to_sparse(), r"\.to_dense\(\)"),
            (torch.tensor([1 + 2j] * 2).conj().imag, r"\.resolve_neg\(\)"),
        ],
        ids=["gradient", "device", "sparse", "negative"],
    )
    def test_of_a_tensor_error_has_pytorch_advice_only(self, tensor, advice):
        with pytest.raises(DtypeError, match=rf"^field `x` must be an array, .*{advice}[^;]*$"):
            ReplayBuffer(4, {"x": Field((2,))}).add(x=tensor)

    @pytest.mark.parametrize(
        "ones", [jnp.ones(1, jnp.bfloat16), torch.ones(1, dtype=torch.bfloat16)], ids=["jax", "torch"]
    )
    def test_of_bfloat16_is_taken_as_the_numbers_it_holds(self, ones):
        buffer, plain = make(), make()
        assert buffer.update_priorities([39], ones * 1.5) == plain.update_priorities([39], [1.5]) == 1
        np.testing.assert_array_equal(plain.probabilities(range(40)), buffer.probabilities(range(40)))

    def test_of_truths_is_refused(self):
        buffer = make()
        with pytest.raises(DtypeError, match="`td_error` must be real numbers"):
            buffer.update_priorities([39], jnp.ones(1, bool))
