"""Claim 9, published returns on MinAtar: whether DQN reaches them over its first million frames.

Obando-Ceron & Castro 2021 (the figure on MinAtar): DQN's mean return over its first million training frames is 3.0 on
Breakout, 46 on Freeway and 16 on Space Invaders, read from the figure. The shipped study ``minatar-million`` has the
settings of the configuration files that they released. The figure of a run is the mean return of the episodes that end
within these frames, with their exploration. A game counts as reached, and its finding as reproduced, unless the 95 %
interval of our mean over the runs lies below the published one.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.claims.study_findings import complete, mean_return
from replaylab.study import Study

PUBLISHED = {"Breakout": 3.0, "Freeway": 46.0, "SpaceInvaders": 16.0}
"""By the game's name in its id."""
MEAN = """
select avg(value) from results
where metric = 'rollout/ep_rew' and environment = 'replaylab/MinAtar-{game}-v1' group by seed order by seed
"""
"""The mean return of each seed's episodes."""


def measure(study: Study) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the study, and yield the mean return of each game.

    Args:
        study: ``minatar-million``; what was run of it before is only read.

    Raises:
        ConfigError: A run failed.
    """
    complete(study)
    for game, published in PUBLISHED.items():
        quantity = f"{game}: mean return of the first {study.spec.budget.steps:,} frames"
        yield mean_return(study, MEAN.format(game=game), quantity, published)


CLAIM = Claim(
    9,
    "MinAtar's DQN, a second source",
    "Over its first million training frames DQN's mean return is 3.0 on MinAtar's Breakout, 46 on Freeway and 16 on "
    "Space Invaders.",
    "Obando-Ceron & Castro 2021, the figure on MinAtar, first of ten million frames",
    25,
    measure,
    ("minatar-million",),
)
