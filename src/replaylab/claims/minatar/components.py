"""Claim 7, Rainbow's parts on MinAtar: what two of them, one at a time, add to DQN in each game.

Obando-Ceron & Castro 2021 add each part of Rainbow to DQN on MinAtar's games, ten million frames long, and take each
from Rainbow. They find distributional learning the most useful addition and noisy networks harmful in Seaquest, neither
of which is about replay, and that the rest varies from game to game. What is tested here are the two parts that are:
3-step returns and prioritized replay, on the games of the shipped study ``minatar``. It is a fiftieth as long, so the
statements are those of the figure's first two points, the mean returns of the first and of the second million frames.
With β fixed at ½ and priorities that are the root of the loss, their prioritized replay has α ≈ 1; so has the study's.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.claims.study_findings import Said, complete, contrast_findings, only_for
from replaylab.study import Study

GAIN, LOSS = ("higher",), ("lower",)
NO_GAIN, NO_LOSS = ("lower", "equivalent"), ("higher", "equivalent")
SAID = {
    "Breakout: 3 steps": Said("above 0 (3.4 to 3.0, then 6.9 to 5.6)", GAIN),
    "Breakout: prioritized": Said("not below 0 (3.0 to 3.0, then 5.6 to 5.6)", NO_LOSS),
    "Freeway: 3 steps": Said("not above 0 (44 to 46, then 56 to 59)", NO_GAIN),
    "Freeway: prioritized": Said("below 0 (2 to 46, then 8 to 59)", LOSS),
    "Space Invaders: 3 steps": Said("above 0 (18 to 16, then 35 to 26)", GAIN),
    "Space Invaders: prioritized": Said("not below 0 (16 to 16, then 30 to 26)", NO_LOSS),
}
"""By the study's contrasts; in brackets returns with the part and without, read from the figure."""


def measure(study: Study) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the study, and yield one finding for each game and part.

    Args:
        study: ``minatar``; what was run of it before is only read, and what the claim does not need is not run.

    Raises:
        ConfigError: A run failed.
    """
    yield from contrast_findings(complete(only_for(study, SAID), study), SAID)


CLAIM = Claim(
    7,
    "Rainbow's parts on MinAtar",
    "What a part of Rainbow adds to DQN varies from game to game: 3-step returns help in Breakout and Space Invaders "
    "and not in Freeway; prioritized replay harms in Freeway and in neither of the others.",
    "Obando-Ceron & Castro 2021, the figure on MinAtar, first two of ten million frames",
    30,
    measure,
    ("minatar",),
)
