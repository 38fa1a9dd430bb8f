"""The random stream and the draws made from it, in plain Python: what a seed must give on every machine."""

import bisect
import itertools
from fractions import Fraction

import numpy as np

MASK = 2**64 - 1


class Stream:
    """xoshiro256++ (Blackman & Vigna 2019), seeded from a child of a NumPy `SeedSequence`.

    Args:
        seed: the buffer's seed.
        spawn_key: which child; (0,) is the sampling stream of a single buffer.
    """

    def __init__(self, seed, spawn_key=(0,)):
        words = np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(4, np.uint64)
        self.state = [int(word) for word in words]

    def bits(self):
        """Draw 64 random bits."""

        def rotate(x, k):
            return (x << k | x >> (64 - k)) & MASK

        a, b, c, d = self.state
        result = (rotate((a + d) & MASK, 23) + a) & MASK
        c, d = c ^ a, d ^ b
        self.state = [a ^ d, b ^ c, c ^ (b << 17 & MASK), rotate(d, 45)]
        return result

    def uniform(self):
        """Draw from [0, 1) with 53 bits."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, n):
        """Draw from {0, ..., n - 1} without bias (Lemire 2019)."""
        while True:
            high, low = divmod(self.bits() * n, 2**64)
            if low >= 2**64 % n:
                return high


def uniform_slots(stream, size, batch_size):
    """Slots of a uniform batch."""
    return [stream.below(size) for _ in range(batch_size)]


def stratified_slots(stream, masses, batch_size):
    """Slots of a prioritized batch: one draw from each of B equal segments of the running sum by slot."""
    sums = list(itertools.accumulate(masses))
    segment = sums[-1] / batch_size
    return [bisect.bisect_right(sums, (k + stream.uniform()) * segment) for k in range(batch_size)]


def block_slots(stream, masses, newest, batch_size, length):
    """Slots of a prioritized batch in blocks, masses whole numbers by slot, of a full ring whose newest slot is given.

    Each of B/L stratified draws stands for its cell: of the steps in order of age, cut with one offset a batch into
    cells of L. From that come L rows at equal distances in the cell's running sum.
    """
    drawn = stratified_slots(stream, masses, batch_size // length)
    offset = stream.below(length)
    cells = {}
    for age in reversed(range(len(masses))):  # oldest first
        cells.setdefault((age + offset) // length, []).append((newest - age) % len(masses))
    rows = []
    for slot in drawn:
        cell = next(cell for cell in cells.values() if slot in cell)
        sums = list(itertools.accumulate(Fraction(masses[slot]) for slot in cell))
        u = Fraction(stream.uniform())
        rows += [cell[bisect.bisect_right(sums, (row + u) * sums[-1] / length)] for row in range(length)]
    return rows
