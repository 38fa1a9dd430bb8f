import random
from bisect import bisect_right
from itertools import accumulate

import pytest
import torch

from replaylab.torch.drawing.priority_tree import FAN, PriorityTree, find_leaves, sum_before, write_leaves

CPU = torch.device("cpu")


@pytest.mark.parametrize("capacity", [1, 5, FAN, FAN + 1, 1_000, 2 * FAN**2 + 7])
def test_updates_and_searches_equal_those_of_a_list(capacity):
    rng, leaves, tree = random.Random(capacity), [0] * capacity, PriorityTree(capacity, CPU)
    for _ in range(12):
        count = rng.randrange(1, min(60, capacity + 1))
        slots = rng.sample(range(capacity), count)
        values = [rng.choice([0, 1, 7, 2**20, 2**37]) for _ in range(count)]
        applies = [rng.random() < 0.8 for _ in range(count)]
        arguments = (torch.tensor(slots), torch.tensor(values), torch.tensor(applies))
        write_leaves(tree.sums, tree.peaks, *arguments, capacity)
        for slot, value, applied in zip(slots, values, applies, strict=True):
            leaves[slot] = value if applied else leaves[slot]
        assert tree.sums[:capacity].tolist() == leaves
        assert (int(tree.total), int(tree.largest)) == (sum(leaves), max(leaves))
        asked = [rng.randrange(capacity) for _ in range(9)]
        assert sum_before(tree.sums, torch.tensor(asked), capacity).tolist() == [sum(leaves[:slot]) for slot in asked]
        if not sum(leaves):
            continue
        ends = list(accumulate(leaves))
        targets = [0, ends[-1] - 1, *(rng.randrange(ends[-1]) for _ in range(40))]
        leaves_found, drawn = find_leaves(tree.sums, torch.tensor(targets), capacity)
        assert leaves_found.tolist() == [bisect_right(ends, target) for target in targets]
        assert drawn.tolist() == [leaves[slot] for slot in leaves_found.tolist()]
    rebuilt = PriorityTree(capacity, CPU)
    rebuilt.load(torch.tensor(leaves))
    assert torch.equal(rebuilt.sums, tree.sums)
    assert torch.equal(rebuilt.peaks, tree.peaks)


def test_every_positive_leaf_of_ten_million_is_reached():
    """A leaf's targets are Σ before it to Σ with it; every target has a random number (`test_philox`)."""
    capacity, generator = 10_000_000, torch.Generator().manual_seed(3)
    leaves = torch.randint(1, 2**38, (capacity,), generator=generator)
    leaves[torch.randint(capacity, (capacity // 50,), generator=generator)] = 0
    leaves[torch.randint(capacity, (capacity // 50,), generator=generator)] = 1
    tree = PriorityTree(capacity, CPU)
    tree.load(leaves)
    ends = leaves.cumsum(0)
    assert int(tree.total) == int(ends[-1]) < 2**62
    borders = torch.arange(0, capacity, FAN**3)
    picked = torch.cat(
        (
            torch.randint(capacity, (20_000,), generator=generator),
            (leaves == 1).nonzero()[:20_000, 0],
            *((borders + shift).clamp(max=capacity - 1) for shift in range(FAN)),
            torch.tensor([capacity - 1]),
        )
    )
    slots = picked[leaves[picked] > 0]
    for targets in (ends[slots] - leaves[slots], ends[slots] - 1):
        leaves_found, drawn = find_leaves(tree.sums, targets, capacity)
        assert torch.equal(leaves_found, slots)
        assert torch.equal(drawn, leaves[slots])
