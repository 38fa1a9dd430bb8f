"""Philox4x32-10: random words that are a function of a key and a counter, equal on every device.

Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". Words of 32 bits are held in
int64, whose products wrap modulo 2^64, as those of unsigned numbers do.
"""

from typing import Any

import torch
from torch import Tensor, nn

from replaylab.replay.data.forks import watch

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF
"""Mask of the lower 32 bits."""


class RandomStream(nn.Module):
    """The random numbers of a replay: those of draw d and row j do not depend on other draws.

    Args:
        seed: Seed of 64 bits.
        device: Device of the numbers.

    Attributes:
        copied: Whether it is a copy, in a forked process, of a stream that the parent draws from.
    """

    keys: Tensor
    factors: Tensor
    draws: Tensor

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        empty = torch.zeros(ROUNDS, 2, 1, dtype=torch.int64, device=device)
        self.register_buffer("keys", empty, persistent=False)
        factors = torch.tensor([MULTIPLIERS, MULTIPLIERS[::-1]], device=device)[..., None]
        self.register_buffer("factors", factors, persistent=False)
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.set_seed(seed)
        watch(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        watch(self)

    def in_child(self) -> None:
        """Record that this is a forked process."""
        self.copied = True

    def set_seed(self, seed: int) -> None:
        """Start another stream."""
        words = (seed >> 32 & LOW, seed & LOW)
        steps = KEY_STEPS[::-1]
        rows = [[(words[i] + r * steps[i]) & LOW for i in (0, 1)] for r in range(ROUNDS)]
        keys = [row[::-1] if r % 2 else row for r, row in enumerate(rows)]
        self.keys.copy_(torch.tensor(keys)[..., None])
        self.seed, self.copied = seed, False
        self.draws.zero_()

    def targets(self, total: Tensor, rows: int, *, stratified: bool = False) -> Tensor:
        """Return random whole numbers below a total, int64 (rows,), the same ones until `draws` is advanced.

        Args:
            total: int64 (), below 2^62; where it is 0, the numbers are 0.
            rows: Number of random numbers.
            stratified: Whether to draw one from each of as many equal segments of the total.
        """
        high, low = self.numbers(rows)
        if stratified:
            return stratum(torch.arange(rows, device=high.device), rows, high, low, total)
        return scaled(high, low, total)

    def numbers(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return random numbers of 64 bits, upper and lower halves, int64 (rows,); see `targets`."""
        row = torch.arange(rows, device=self.draws.device)
        low, high = (self.draws & LOW).expand(rows), (self.draws >> 32).expand(rows)
        multiplied, mixed = torch.stack((row, low)), torch.stack((high, torch.zeros_like(row)))
        words = random_words(self.keys, self.factors, multiplied, mixed)
        return words[0][0].clone(), words[1][1].clone()


def seed_of_torch() -> int:
    """Return a random seed from PyTorch's generator, which `torch.manual_seed` determines."""
    return int(torch.randint(2**62, ()))


def random_words(keys: Tensor, factors: Tensor, multiplied: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the words of counters, as Philox's words (0, 2) and (3, 1), each int64 (2, n).

    Args:
        keys: Keys of a `RandomStream`.
        factors: Factors of a `RandomStream`.
        multiplied: Words 0 and 2 of each counter, int64 (2, n).
        mixed: Words 3 and 1.
    """
    # The two halves of a round change places in each: in odd rounds row 0 holds word 2. That saves half the flips.
    for r in range(ROUNDS):
        product = multiplied * factors[r % 2]
        multiplied = ((product >> 32) ^ mixed ^ keys[r]) & LOW
        mixed = product.flip(0)
    return multiplied, mixed & LOW


def scaled(high: Tensor, low: Tensor, total: Tensor) -> Tensor:
    """Return ⌊r·total / 2^64⌋ of the random number r = 2^32·high + low, exactly; int64 like `high`.

    Args:
        high: The upper 32 bits.
        low: The lower 32 bits.
        total: int64, at least 0 and below 2^62.
    """
    total_high, total_low = total >> 32, total & LOW
    low_high, high_low = low * total_high, high * total_low
    middle = ((low * total_low >> 32) & LOW) + (low_high & LOW) + (high_low & LOW)
    return high * total_high + (low_high >> 32) + ((high_low >> 32) & LOW) + (middle >> 32)


def stratum(row: Tensor, rows: int, high: Tensor, low: Tensor, total: Tensor) -> Tensor:
    """Return ⌊(j + u)·total / rows⌋ with u = r / 2^64: a target from the j-th of `rows` equal segments of the total."""
    share, rest = total // rows, total % rows
    return row * share + (row * rest + scaled(high, low, total)) // rows
