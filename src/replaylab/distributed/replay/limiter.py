"""The limiter: how many rows are drawn for each step stored, over all shards."""

from dataclasses import dataclass

from replaylab.arguments import POSITIVE, check


@dataclass(frozen=True)
class Limiter:
    """Bounds the rows drawn for every step stored, over all shards and readers.

    With d = `samples_per_insert`·(steps stored so far − `min_size` of the replay) − (rows drawn so far), batches are
    drawn while −`error_buffer` ≤ d holds after the draw, and steps are stored while d < `error_buffer`. `sample` waits
    otherwise, and so do writers, but not `RemoteReplay.add`, since one thread may both add and draw. The lower bound is
    exact. The upper one may be exceeded by one unroll in each shard. Batches drawn ahead count as drawn. Source:
    `SampleToInsertRatio` of Reverb (Cassirer et al. 2021).

    Attributes:
        samples_per_insert: Rows for each step stored.
        error_buffer: Rows by which d may differ from 0; at least half a batch. Small values make readers and writers
            wait for each other; a good value is several batches plus the rows of all unrolls on their way.
        timeout: Seconds after which `sample` stops waiting and raises `EmptyBufferError`. Default: 60.0.

    Example:
        >>> limiter = Limiter(samples_per_insert=8.0, error_buffer=512.0)
        >>> limiter.most_rows(inserted=1_000, min_size=100), limiter.most_steps(drawn=0, min_size=100)
        (7712.0, 164.0)
    """

    samples_per_insert: float
    error_buffer: float
    timeout: float = 60.0

    def __post_init__(self) -> None:
        check(self, samples_per_insert=POSITIVE, error_buffer=POSITIVE, timeout=POSITIVE)

    def most_rows(self, inserted: int, min_size: int) -> float:
        """Return how many rows may have been drawn once this many steps are stored."""
        return self.samples_per_insert * (inserted - min_size) + self.error_buffer

    def most_steps(self, drawn: int, min_size: int) -> float:
        """Return how many steps may have been stored once this many rows are drawn."""
        return (drawn + self.error_buffer) / self.samples_per_insert + min_size
