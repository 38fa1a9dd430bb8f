"""The random stream and the draws made from it, in plain Python: what a seed must give on every machine."""

import bisect
import itertools

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
