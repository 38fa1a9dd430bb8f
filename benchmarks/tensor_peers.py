"""Peers whose rows are tensors: torchrl's and flashbax's buffers. What each does and does not do: README.md."""

import importlib
import os
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import ALPHA, BATCH, BETA, Contestant, Pool

BUILD = Path(__file__).parents[1] / "build"


@cache
def import_torchrl() -> None:
    """Import torchrl with its trees, which its wheel has in compiled form for one version of PyTorch only.

    With any other version they are compiled, once, from the source in the wheel.
    """
    try:
        importlib.import_module("torchrl._torchrl")
    except ImportError:
        import torch
        import torchrl
        from torch.utils.cpp_extension import load

        folder = BUILD / f"torchrl-{torchrl.__version__}-torch-{torch.__version__}"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja is there
        print(f"torchrl: its trees for PyTorch {torch.__version__} are in {folder}: compiled if new, a minute or two")
        source = Path(torchrl.__file__).parent / "csrc"
        files = [str(source / name) for name in ("pybind.cpp", "utils.cpp")]
        try:
            extension = load("_torchrl", files, extra_cflags=["-O3", "-DNDEBUG"], build_directory=str(folder))
        except Exception as error:  # of any kind, since it comes from a compiler
            print(f"torchrl: its trees cannot be compiled here: {error}")
        else:
            sys.modules["torchrl._torchrl"] = extension


def import_flashbax() -> tuple[Any, Any]:
    """Import JAX, with one thread that computes before a call returns, and flashbax; return both."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    with warnings.catch_warnings(action="ignore"):
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)
        import flashbax
    return jax, flashbax


def random_keys(seeds: list[int]) -> list[Any]:
    """Return a key of JAX for each seed."""
    import jax

    return list(jax.random.split(jax.random.PRNGKey(seeds[0]), len(seeds)))


class Torchrl(Contestant):
    """torchrl: a tensor for each field, batches as dicts of tensors, a binary segment tree in C++."""

    package: ClassVar[str] = "torchrl"
    label: ClassVar[str] = "torchrl"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        import_torchrl()
        with warnings.catch_warnings(action="ignore"):
            import torch
            from torchrl.data import LazyTensorStorage, PrioritizedSampler, RandomSampler, ReplayBuffer

        super().__init__(capacity, prioritized)
        sampler = PrioritizedSampler(capacity, ALPHA, BETA) if prioritized else RandomSampler()
        self.buffer = ReplayBuffer(storage=LazyTensorStorage(capacity), sampler=sampler, batch_size=BATCH)
        self._tensor = torch.from_numpy

    def fetch(self) -> dict[str, NDArray[Any]]:
        return {name: column.numpy() for name, column in self.buffer.sample().items()}

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        self.added += len(steps)
        return [{name: self._tensor(column)[0] for name, column in vars(s).items()} for s in steps]

    def add(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        for step in inputs:
            add(step)

    def prepare_add_64(self, chunks: list[Pool]) -> list[Any]:
        self.added += sum(map(len, chunks))
        return [{name: self._tensor(column) for name, column in vars(s).items()} for s in chunks]

    def add_64(self, inputs: list[Any]) -> None:
        extend = self.buffer.extend
        for steps in inputs:
            extend(steps)

    def sample(self, inputs: list[Any]) -> None:
        sample, with_weights = self.buffer.sample, self.prioritized
        for _ in inputs:
            batch = sample(return_info=with_weights)
        del batch

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        return list(zip(self._tensor(self.slots(ages)), self._tensor(priorities.astype(np.float32)), strict=True))

    def update(self, inputs: list[Any]) -> None:
        update = self.buffer.update_priority
        for slots, priorities in inputs:
            update(slots, priorities)


class Flashbax(Contestant):
    """flashbax: an array for each field and a binary sum tree, in functions that XLA compiles."""

    package: ClassVar[str] = "flashbax"
    label: ClassVar[str] = "flashbax"
    extra: ClassVar[str] = "bench-jax"

    def __init__(self, capacity: int, prioritized: bool) -> None:
        jax, flashbax = import_flashbax()
        jit, self._put = jax.jit, jax.device_put
        super().__init__(capacity, prioritized)
        options = {"max_length": capacity, "min_length": BATCH, "sample_batch_size": BATCH, "add_sequences": True}
        if prioritized:
            buffer = flashbax.make_prioritised_item_buffer(**options, priority_exponent=ALPHA, device="cpu")
            self._update = jit(buffer.set_priorities, donate_argnums=0)
        else:
            buffer = flashbax.make_item_buffer(**options)
        self._add, self._sample = jit(buffer.add, donate_argnums=0), jit(buffer.sample)
        step = vars(Pool.draw(np.random.default_rng(0), 1))
        self.state = jit(buffer.init)({name: column[0] for name, column in step.items()})

    def fetch(self) -> dict[str, NDArray[Any]]:
        (key,) = self.prepare_sample([1])
        return {name: np.asarray(column) for name, column in self._sample(self.state, key).experience.items()}

    def prepare_add(self, steps: list[Pool]) -> list[Any]:
        self.added += sum(map(len, steps))
        return [self._put(vars(s)) for s in steps]

    def add(self, inputs: list[Any]) -> None:
        add, state = self._add, self.state
        for steps in inputs:
            state = add(state, steps)
        self.state = state

    def prepare_sample(self, seeds: list[int]) -> list[Any]:
        return random_keys(seeds)

    def sample(self, inputs: list[Any]) -> None:
        sample, state = self._sample, self.state
        for key in inputs:
            batch = sample(state, key)
        del batch

    def prepare_update(self, ages: NDArray[np.int64], priorities: NDArray[np.float64]) -> list[Any] | None:
        pairs = zip(self.slots(ages).astype(np.int32), priorities.astype(np.float32), strict=True)
        return list(map(self._put, pairs))

    def update(self, inputs: list[Any]) -> None:
        update, state = self._update, self.state
        for slots, priorities in inputs:
            state = update(state, slots, priorities)
        self.state = state
