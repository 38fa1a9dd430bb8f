import random

import pytest
import torch

from replaylab.torch.drawing.philox import (
    KEY_STEPS,
    LOW,
    MULTIPLIERS,
    ROUNDS,
    RandomStream,
    random_words,
    scaled,
    stratum,
)

KNOWN = [  # Random123, tests/kat_vectors: counter, key, words
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([LOW] * 4, [LOW] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def philox(counter, key):
    """Philox4x32-10 in Python's integers."""
    counter, key = list(counter), list(key)
    for _ in range(ROUNDS):
        first, second = counter[0] * MULTIPLIERS[0], counter[2] * MULTIPLIERS[1]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & LOW,
            (first >> 32) ^ counter[3] ^ key[1],
            first & LOW,
        ]
        key = [(word + step) & LOW for word, step in zip(key, KEY_STEPS, strict=True)]
    return counter


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_words_are_those_of_random123(counter, key, words):
    assert philox(counter, key) == words
    stream = RandomStream(key[0] | key[1] << 32, torch.device("cpu"))
    columns = torch.tensor(counter)[:, None]
    first, second = random_words(stream.keys, stream.factors, columns[[0, 2]], columns[[3, 1]])
    assert [int(first[0]), int(second[1]), int(first[1]), int(second[0])] == words


def test_numbers_depend_on_draw_and_row():
    seed = 0x0123456789ABCDEF
    stream = RandomStream(seed, torch.device("cpu"))
    for draw in (2**32 - 1, 2**32):  # then the counter's next word comes in
        stream.draws.fill_(draw)
        high, low = stream.numbers(5)
        for row in range(5):
            words = philox([row, 0, draw & LOW, draw >> 32], [seed & LOW, seed >> 32])
            assert (int(high[row]), int(low[row])) == (words[0], words[1])


def test_scaling_equals_big_integers():
    rng = random.Random(5)
    for _ in range(500):
        number, total = rng.getrandbits(64), rng.getrandbits(rng.randrange(63)) % 2**62
        rows = rng.randrange(1, 2**15)
        row = rng.randrange(rows)
        parts = (torch.tensor(number >> 32), torch.tensor(number & LOW), torch.tensor(total))
        target = number * total >> 64
        assert int(scaled(*parts)) == target
        assert int(stratum(torch.tensor(row), rows, *parts)) == (row * total + target) // rows


def test_every_target_has_a_number():
    rng = random.Random(6)
    for total in (1, 3, 2**40 + 1, 2**62 - 1):
        for target in {0, total - 1, *(rng.randrange(total) for _ in range(50))}:
            number = -(-target * 2**64 // total)
            assert int(scaled(torch.tensor(number >> 32), torch.tensor(number & LOW), torch.tensor(total))) == target
