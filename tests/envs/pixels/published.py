"""The published package, given the random numbers of ours."""

import numpy as np

MASK = 2**64 - 1


class Stream:
    """The core's random numbers (xoshiro256++), by those methods of `numpy.random.RandomState` that MinAtar calls.

    Args:
        words: The stream's four words.
    """

    def __init__(self, words):
        self.words = [int(word) for word in words]

    def bits(self):
        s = self.words
        result = (_rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        shifted = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = _rotate(s[3], 45)
        return result

    def rand(self, size=None):
        if size is not None:
            return np.array([self.rand() for _ in range(size)])
        return (self.bits() >> 11) * 2.0**-53

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        if size is not None:
            return np.array([self.randint(low, high) for _ in range(size)])
        n = high - low
        product = self.bits() * n
        while product & MASK < (-n & MASK) % n:
            product = self.bits() * n
        return low + (product >> 64)


def _rotate(x, k):
    return (x << k | x >> (64 - k)) & MASK


class Published:
    """One copy of a game of the package, each episode with a stream that `generator` starts, as in ours."""

    def __init__(self, game, generator, **options):
        from minatar.environment import Environment

        self.generator = generator
        self.env = Environment(game, **options)

    def reset(self):
        self.env.random = self.env.env.random = Stream(self.generator.bit_generator.random_raw(4))
        self.env.reset()
        return self.obs()

    def step(self, action):
        reward, terminated = self.env.act(action)
        return self.obs(), reward, terminated

    def obs(self):
        return self.env.state().transpose(2, 0, 1)
