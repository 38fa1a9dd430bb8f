"""Guarantee 5 at its edges: the sum tree alone, asked for targets that no seed would draw in a lifetime.

The tree is compiled by itself, so these tests need the sources and a C++ compiler; they are left out without.
"""

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest

from tests.replay.compiled import NEEDS_COMPILER, compiled

CAPACITIES = [1, 2, 15, 16, 17, 127, 128, 129, 1000, 2049, 16385, 131073]

pytestmark = NEEDS_COMPILER


@pytest.fixture(scope="module")
def library():
    """The compiled tree."""
    path = compiled(
        Path(__file__).with_name("sum_tree_probe.cpp"),
        ["indexes/sum_tree.cpp"],
        *("-O2", "-ffp-contract=off", "-shared", "-fPIC"),
    )
    probe = ctypes.CDLL(str(path))
    probe.tree_new.restype = ctypes.c_void_p
    probe.tree_new.argtypes = [ctypes.c_int64]
    probe.tree_delete.argtypes = [ctypes.c_void_p]
    probe.tree_total.restype = ctypes.c_double
    probe.tree_total.argtypes = [ctypes.c_void_p]
    for extreme in (probe.tree_smallest_positive, probe.tree_largest):
        extreme.restype = ctypes.c_float
        extreme.argtypes = [ctypes.c_void_p]
    doubles, floats, slots = (np.ctypeslib.ndpointer(t) for t in (np.float64, np.float32, np.int64))
    probe.tree_set.argtypes = [ctypes.c_void_p, slots, floats, ctypes.c_int64]
    probe.tree_find.argtypes = [ctypes.c_void_p, doubles, ctypes.c_int64, slots]
    probe.tree_find_portable.argtypes = probe.tree_find.argtypes
    return probe


class Tree:
    """A sum tree with these leaves."""

    def __init__(self, library, leaves):
        self.library = library
        self.pointer = library.tree_new(len(leaves))
        self.set(np.arange(len(leaves)), leaves)

    def __del__(self):
        self.library.tree_delete(self.pointer)

    def set(self, slots, values):
        slots, values = np.array(slots, np.int64), np.array(values, np.float32)
        self.library.tree_set(self.pointer, slots, values, len(slots))

    @property
    def total(self):
        return self.library.tree_total(self.pointer)

    @property
    def extremes(self):
        """The smallest positive leaf and the largest."""
        return self.library.tree_smallest_positive(self.pointer), self.library.tree_largest(self.pointer)

    def find(self, targets):
        """Slots of targets; both ways down must agree."""
        slots_of_ways = np.empty((2, len(targets)), np.int64)
        for slots, way in zip(slots_of_ways, (self.library.tree_find, self.library.tree_find_portable), strict=True):
            way(self.pointer, np.array(targets, np.float64), len(targets), slots)
        np.testing.assert_array_equal(*slots_of_ways)
        return slots_of_ways[0]


def edges(leaves, total):
    """Every prefix sum and its nearest neighbours, both ends, and far outside."""
    sums = np.cumsum(leaves)[:: max(1, len(leaves) // 2000)]
    around = [sums, np.nextafter(sums, 0), np.nextafter(sums, np.inf)]
    for _ in range(5):
        around += [np.nextafter(around[-2], 0), np.nextafter(around[-1], np.inf)]
    ends = [
        0.0,
        5e-324,
        np.nextafter(total, 0),
        total,
        np.nextafter(total, np.inf),
        total * (1 + 1e-9),
        2 * total,
    ]
    return np.concatenate([*around, ends])


@pytest.mark.parametrize("capacity", CAPACITIES)
class TestEdges:
    def test_a_zero_leaf_is_never_found(self, library, capacity):
        rng = np.random.default_rng(capacity)
        for zeros in [0.0, 0.3, 0.9, 0.999] * (5 if capacity < 2000 else 2):
            for spread in [0, 5, 8, 12, 30, 37]:
                leaves = (10.0 ** rng.uniform(-spread, spread, capacity)).astype(np.float32)
                leaves[rng.random(capacity) < zeros] = 0
                leaves[rng.integers(capacity)] = 1
                tree = Tree(library, leaves)
                slots = tree.find(edges(leaves.astype(np.float64), tree.total))
                assert slots.min() >= 0
                assert slots.max() < capacity
                assert (leaves[slots] > 0).all()

    def test_one_leaf_takes_every_target(self, library, capacity):
        for place in {0, capacity // 2, capacity - 1}:
            for value in [1e-38, 1.2e-38, 1 / 3, 3e38]:
                leaves = np.zeros(capacity, np.float32)
                leaves[place] = value
                tree = Tree(library, leaves)
                assert tree.total == leaves[place]
                assert set(tree.find(edges(leaves.astype(np.float64), tree.total)).tolist()) == {place}

    def test_whole_numbers_are_found_exactly(self, library, capacity):
        """With whole leaves every sum is exact: the leaf is the one at which the running sum passes."""
        rng = np.random.default_rng(capacity)
        leaves = rng.integers(0, 50, capacity)
        leaves[rng.integers(capacity)] += 1
        tree = Tree(library, leaves)
        sums = np.cumsum(leaves)
        assert tree.total == sums[-1]
        targets = edges(leaves.astype(np.float64), tree.total)
        targets = targets[targets < tree.total]
        np.testing.assert_array_equal(tree.find(targets), np.searchsorted(sums, targets, side="right"))

    def test_the_total_is_the_exact_sum(self, library, capacity):
        rng = np.random.default_rng(capacity)
        leaves = np.zeros(capacity, np.float32)
        tree = Tree(library, leaves)
        for _ in range(20):
            slots = rng.integers(0, capacity, 50)
            values = (10.0 ** rng.uniform(-30, 30, 50) * (rng.random(50) < 0.8)).astype(np.float32)
            tree.set(slots, values)
            leaves[slots] = values
            assert tree.total == pytest.approx(math.fsum(leaves.tolist()), rel=1e-14)
        tree.set(np.arange(capacity), np.zeros(capacity))
        assert tree.total == 0

    def test_extremes_are_those_of_the_leaves(self, library, capacity):
        """Also if many leaves are the smallest or the largest, if those change, and if none is positive."""
        rng = np.random.default_rng(capacity)
        leaves = np.zeros(capacity, np.float32)
        tree = Tree(library, leaves)
        assert tree.extremes == (math.inf, 0)
        for turn in range(300):
            slots = rng.integers(0, capacity, rng.integers(1, 50))
            if turn % 3 == 0:  # the leaves that are extreme now
                positive = np.where(leaves > 0, leaves, np.inf)
                slots = np.flatnonzero((positive == positive.min()) | (leaves == leaves.max()))[:50]
            values = rng.choice([0, 0.5, 1, *(10.0 ** rng.uniform(-30, 30, 5))], len(slots)).astype(np.float32)
            tree.set(slots, values)
            leaves[slots] = values
            if turn % 2:  # between reads several changes may come
                assert tree.extremes == (min(leaves[leaves > 0], default=math.inf), leaves.max())
