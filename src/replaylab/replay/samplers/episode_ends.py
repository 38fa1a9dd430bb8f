"""Draws by the position in the episode."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab.arguments import FRACTION, flag, option
from replaylab.episode_ends import ENDS
from replaylab.replay.data.schedules import Schedule, scheduled
from replaylab.replay.samplers.sampler import COUNT, Sampler


@dataclass(frozen=True)
class EpisodeEnds(Sampler):
    """Last steps of finished episodes more often than others.

    With probability s one of the L stored steps that are among the last of an episode that has ended, each of them
    alike, otherwise any step; while L = 0, any step. Sampling probability: P(i) = (1 − s)/N + s·[i is among them]/L.
    `end_episode` cuts an episode, which counts as truncated. The buffer must have the field ``terminated``; with
    `truncated` one of ``terminated`` and ``truncated``, or ``episodes="manual"``. A buffer that is loaded with other
    options draws by these. Source: none, of this library.

    Attributes:
        share: s in [0, 1]; 0 is uniform sampling. A schedule over training progress, such as a `Table` with the share
            that another strategy drew, needs ``progress`` in `sample`. Default: 0.1.
        steps: How many steps of an episode are its last ones. Default: 1.
        truncated: Whether truncated episodes count, or only terminated ones. Default: False.
    """

    share: float | Schedule = option(scheduled(FRACTION), 0.1)
    steps: int = option(COUNT, 1)
    truncated: bool = option(flag, False)

    needs_order: ClassVar[bool] = True
    needs_episodes: ClassVar[bool] = True
    distribution_needs_progress: ClassVar[bool] = True
    core_kind: ClassVar[str] = "episode_ends"

    @property
    def scheduled(self) -> float | Schedule:
        """The share s."""
        return self.share

    @property
    def end_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """``terminated``, and ``truncated`` if truncated episodes count."""
        return ENDS if self.truncated else ENDS[:1]

    def core_options(self) -> dict[str, float]:
        """Return the options of its kind in the compiled core."""
        return {"steps": self.steps, "truncated": self.truncated}
