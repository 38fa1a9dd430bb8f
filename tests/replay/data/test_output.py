"""Batches as PyTorch's and JAX's arrays: the same bytes, the same memory, the same dtypes and nesting."""

import pickle
import sys

import jax
import numpy as np
import pytest
import torch

from replaylab.errors import ConfigError, DtypeError, MissingExtraError, ShapeError
from replaylab.replay import Batch, Field, NStep, Prioritized, ReplayBuffer
from tests.oracle import flatten

FIELDS = {
    "obs": {"camera": Field((12, 9), np.uint8), "joints": (Field((7,)), Field((3,), np.float16))},
    "action": Field((), np.int64),
    "reward": Field((), np.float64),
    "flag": Field((), np.bool_),
    "small": Field((), np.int16),
}
NUMPY = {torch.uint8: np.uint8, torch.bool: np.bool_, torch.float16: np.float16, torch.float32: np.float32}
NUMPY |= {torch.int16: np.int16, torch.int64: np.int64, torch.float64: np.float64}


def make(replicas=None):
    buffer = ReplayBuffer(40, FIELDS, sampler=Prioritized(beta=0.5), replicas=replicas, seed=0)
    rng = np.random.default_rng(1)
    lead = (50,) if replicas is None else (replicas, 50)
    buffer.extend(
        obs={
            "camera": rng.integers(0, 256, (*lead, 12, 9), np.uint8),
            "joints": (rng.random((*lead, 7), np.float32), rng.random((*lead, 3)).astype(np.float16)),
        },
        action=rng.integers(0, 9, lead),
        reward=rng.random(lead),
        flag=rng.random(lead) < 0.5,
        small=rng.integers(-99, 99, lead, np.int16),
    )
    return buffer


def leaves(batch):
    return flatten(dict(batch))


@pytest.mark.parametrize("replicas", [None, 3])
class TestTorch:
    def test_shares_the_memory_of_every_column(self, replicas):
        batch = make(replicas).sample(32)
        tensors, arrays = leaves(batch.torch()), leaves(batch)
        assert tensors.keys() == arrays.keys()
        for path, tensor in tensors.items():
            assert isinstance(tensor, torch.Tensor)
            assert tensor.data_ptr() == arrays[path].ctypes.data
            assert NUMPY[tensor.dtype] == arrays[path].dtype
            np.testing.assert_array_equal(tensor.numpy(), arrays[path])
        batch.obs["camera"][...] = 7
        assert (tensors["obs", "camera"] == 7).all()

    def test_nesting_is_kept(self, replicas):
        tensors = make(replicas).sample(4).torch()
        assert isinstance(tensors, Batch)
        assert isinstance(tensors.obs, dict)
        assert isinstance(tensors.obs["joints"], tuple)
        assert tensors.obs["camera"].dtype == torch.uint8
        assert tensors.flag.dtype == torch.bool

    def test_ids_go_back(self, replicas):
        buffer = make(replicas)
        tensors = buffer.sample(8).torch()
        td_error = torch.rand(tensors.weight.shape)
        assert buffer.update_priorities(tensors.id, td_error) == td_error.numel()


class TestTorchDevice:
    """The "meta" device stands in for a GPU: it has no memory, but the same rules."""

    def test_columns_go_there_and_bookkeeping_stays(self):
        tensors = leaves(make().sample(4).torch("meta"))
        on_cpu = {path[0] for path, tensor in tensors.items() if tensor.device.type == "cpu"}
        assert on_cpu == {"id", "probability"}

    def test_again_on_a_batch_of_tensors(self):
        tensors = make().sample(4).torch()
        assert tensors.torch().action is tensors.action
        assert tensors.torch("cpu").action is tensors.action
        assert tensors.torch("meta").action.device.type == "meta"

    @pytest.mark.cuda
    def test_cuda(self):
        buffer = make()
        batch = buffer.sample(32)
        for source in (batch, batch.pin_memory()):
            tensors = source.torch("cuda")
            torch.cuda.synchronize()
            for path, tensor in leaves(tensors).items():
                np.testing.assert_array_equal(tensor.cpu().numpy(), leaves(batch)[path])

    @pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="the same as float64 here")
    def test_a_dtype_pytorch_lacks(self):
        buffer = ReplayBuffer(4, {"x": Field((), np.longdouble)})
        buffer.add(x=np.longdouble(1))
        with pytest.raises(DtypeError, match=r"PyTorch has no dtype for .*; declare the field with one it has"):
            buffer.sample(2).torch()


def test_a_transform_s_own_columns_come_too():
    fields = {"obs": Field((3,)), "reward": Field(), "next_obs": Field((3,))}
    fields |= {"terminated": Field((), bool), "truncated": Field((), bool)}
    buffer = ReplayBuffer(10, fields, transforms=[NStep(3)])
    buffer.add(obs=np.zeros(3), reward=1.0, next_obs=np.ones(3), terminated=False, truncated=False)
    tensors = buffer.sample(4).torch()
    assert tensors.discount.dtype == torch.float32
    assert tensors.n_steps.tolist() == [1] * 4


class TestJax:
    def test_large_columns_are_not_copied(self):
        batch = make().sample(256)
        arrays = leaves(batch)
        addresses = {path: array.ctypes.data for path, array in arrays.items()}
        as_jax = leaves(batch.jax())
        shared = {path for path, a in as_jax.items() if path[0] not in ("id", "probability", "action", "reward")}
        assert len(shared) == 6
        for path in shared:
            assert isinstance(as_jax[path], jax.Array)
            assert as_jax[path].dtype == arrays[path].dtype
            if arrays[path].nbytes >= 1024:
                assert as_jax[path].unsafe_buffer_pointer() == addresses[path], path
            np.testing.assert_array_equal(as_jax[path], arrays[path])

    def test_64_bits_are_cut_as_jax_does_but_not_the_bookkeeping(self):
        batch = make().sample(32)
        arrays = batch.jax()
        assert arrays.action.dtype == np.int32
        assert arrays.reward.dtype == np.float32
        np.testing.assert_array_equal(arrays.action, batch.action)
        assert arrays.id is batch.id
        assert arrays.probability is batch.probability

    def test_64_bits_are_kept_where_jax_is_reported_so(self):
        with jax.enable_x64(True):
            batch = make().sample(256)
            arrays = batch.jax()
            assert arrays.reward.dtype == np.float64
            assert arrays.reward.unsafe_buffer_pointer() == batch.reward.ctypes.data

    def test_what_jax_shares_cannot_change(self):
        """JAX's arrays are immutable, so the memory they share is too."""
        buffer = make()
        batch = buffer.sample(256)
        arrays = batch.jax()
        with pytest.raises(ValueError, match="read-only"):
            batch.obs["camera"][...] = 0
        with pytest.raises(ShapeError, match="writable"):
            buffer.sample(256, out=batch)
        again = batch.jax()  # a second time it is copied
        np.testing.assert_array_equal(again.obs["camera"], arrays.obs["camera"])
        assert batch.torch().obs["camera"].data_ptr() != batch.obs["camera"].ctypes.data
        assert arrays.jax().obs["camera"] is arrays.obs["camera"]

    def test_it_outlives_the_batch(self):
        buffer = make()
        batch = buffer.sample(256)
        expected = batch.obs["camera"].copy()
        arrays = batch.jax()
        del batch
        for _ in range(50):
            buffer.sample(256)
        np.testing.assert_array_equal(arrays.obs["camera"], expected)

    def test_copy_leaves_the_batch_writable(self):
        buffer = make()
        batch = buffer.sample(256)
        expected = batch.obs["camera"].copy()
        arrays = batch.jax(copy=True)
        for _ in range(5):
            buffer.sample(256, out=batch)
        np.testing.assert_array_equal(arrays.obs["camera"], expected)

    def test_a_device(self):
        batch = make().sample(32)
        device = jax.devices()[0]
        arrays = batch.jax(device)
        assert arrays.weight.device == device
        np.testing.assert_array_equal(arrays.obs["camera"], batch.obs["camera"])
        assert arrays.jax(device).weight.device == device

    def test_compiled_functions_take_a_batch(self):
        batch = make().sample(8).jax()
        scaled = jax.jit(lambda batch: jax.tree.map(lambda x: x * 2, batch))(batch)
        assert isinstance(scaled, Batch)
        np.testing.assert_array_equal(scaled.obs["joints"][0], batch.obs["joints"][0] * 2)
        assert list(scaled) == list(batch)


def test_any_library_takes_a_column_through_dlpack():
    batch = make().sample(8)
    assert np.shares_memory(np.from_dlpack(batch.obs["camera"]), batch.obs["camera"])
    assert torch.from_dlpack(batch.flag).data_ptr() == batch.flag.ctypes.data


class TestPinned:
    def test_a_missing_accelerator_raises(self):
        if torch.cuda.is_available():
            pytest.skip("needs a machine without a GPU")
        with pytest.raises(ConfigError, match=r"pinned for copies to an accelerator.*Leave pinning out"):
            make().sample(4).pin_memory()

    def test_a_copy_to_reuse(self, pinning):
        buffer, twin = make(), make()
        batch = buffer.sample(8)
        twin.sample(8)
        pinned = batch.pin_memory()
        for path, array in leaves(pinned).items():
            assert isinstance(array, np.ndarray)
            np.testing.assert_array_equal(array, leaves(batch)[path])
            assert not np.shares_memory(array, leaves(batch)[path])
        first = leaves(pinned)
        assert buffer.sample(8, out=pinned) is pinned
        for path, array in leaves(twin.sample(8)).items():
            assert leaves(pinned)[path] is first[path]
            np.testing.assert_array_equal(first[path], array)

    def test_its_tensors_are_the_pinned_ones(self, pinning):
        pinned = make().sample(8).pin_memory()
        for path, tensor in leaves(pinned.torch()).items():
            array = leaves(pinned)[path]
            assert tensor.data_ptr() == array.ctypes.data
            if path[0] not in ("id", "probability"):
                assert tensor is array.base
                assert not torch.cuda.is_available() or tensor.is_pinned()

    def test_an_iterator_pins_each_batch_on_its_own(self, pinning):
        plain, pinned = make(), make()
        for ahead in (0, 2):
            batches = list(pinned.batches(8, prefetch=ahead, total=4, pin_memory=True))
            for batch in batches:
                np.testing.assert_array_equal(batch.obs["camera"], plain.sample(8).obs["camera"])
                assert isinstance(batch.obs["camera"].base, torch.Tensor)


@pytest.mark.parametrize(("library", "call"), [("torch", "torch"), ("torch", "pin_memory"), ("jax", "jax")])
def test_a_missing_library_names_the_install_command(library, call, monkeypatch):
    class Fresh(Batch):
        """JAX is imported once for each class."""

    batch = Fresh(dict(make().sample(2)))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError) as error:
        getattr(batch, call)()
    assert str(error.value) == (
        f'Batch.{call}() needs {library}, which is not installed. Run: pip install "replaylab[{library}]"'
    )


@pytest.mark.parametrize("convert", [lambda batch: batch, lambda batch: batch.torch()])
def test_a_batch_can_be_pickled(convert):
    """As PyTorch's worker processes do."""
    batch = convert(make().sample(4))
    again = pickle.loads(pickle.dumps(batch))
    assert list(again) == list(batch)
    np.testing.assert_array_equal(again.obs["joints"][0], batch.obs["joints"][0])
    with pytest.raises(AttributeError, match="the batch has no column `nothing`"):
        again.nothing  # noqa: B018


def test_the_repr_is_the_same_for_tensors():
    batch = make().sample(4)
    assert repr(batch.torch()) == repr(batch)
