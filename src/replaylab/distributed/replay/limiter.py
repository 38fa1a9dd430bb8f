"""How often stored steps may be drawn, over all shards."""

from dataclasses import dataclass

from replaylab.arguments import NOT_NEGATIVE, POSITIVE, check


@dataclass(frozen=True)
class Limiter:
    """Bounds the rows drawn for every step stored, over all shards: enforced where batches are drawn.

    Rows asked for so far ≤ `samples_per_insert`·(steps stored so far) + `slack`, always; batches on their way count
    as asked for. `sample` waits until its batch is within the bound. Writers never wait for it.

    Attributes:
        samples_per_insert: Rows for each step stored.
        slack: Rows beyond them. Default: 0.0.
        timeout: Seconds after which `sample` stops waiting, and raises `EmptyBufferError`. Default: 60.0.

    Example:
        >>> Limiter(samples_per_insert=8.0).allows(drawn=2_000, inserted=256)
        True
    """

    samples_per_insert: float
    slack: float = 0.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check(self, samples_per_insert=POSITIVE, slack=NOT_NEGATIVE, timeout=POSITIVE)

    def allowed(self, inserted: int) -> float:
        """Return how many rows may have been asked for once so many steps are stored."""
        return self.samples_per_insert * inserted + self.slack

    def allows(self, drawn: int, inserted: int) -> bool:
        """Whether so many rows may have been asked for."""
        return drawn <= self.allowed(inserted)
