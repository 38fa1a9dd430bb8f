"""Claim 8, a published curve of MinAtar: whether DQN reaches its return after as many frames.

Young & Tian 2019 (learning curves, also in the README of their package): the return of DQN on Breakout, explored with
ε = .1, as a moving average over 100 episodes and the mean of 30 runs, is 8.3 after 500,000 frames, read from the figure
to about .1. The shipped study ``minatar-published`` has their settings, and the same with Adam in place of RMSprop. The
figure of a run is the mean return of its last 100 training episodes. The curve counts as reached, and the claim as
reproduced, unless the 95 % interval of our mean over the runs with RMSprop lies below it; what Adam comes to is said
beside it.
"""

from collections.abc import Iterator

from replaylab.claims.claim import Claim, ReplicatedFigure
from replaylab.claims.study_findings import complete, mean_return
from replaylab.study import Study

PUBLISHED, EPISODES = 8.3, 100
OPTIMIZERS = {"uniform-rmsprop": "RMSprop", "uniform": "Adam"}
"""By the study's strategies; the first is the paper's."""
LAST = """
select avg(value) from (
    select seed, value, row_number() over (partition by seed order by step desc) as back
    from results where metric = 'rollout/ep_rew' and strategy = '{strategy}'
) where back <= {episodes} group by seed order by seed
"""
"""The mean return of each seed's last episodes."""


def measure(study: Study) -> Iterator[ReplicatedFigure]:
    """Run what is missing of the study, and yield the return after its frames, by each optimizer.

    Args:
        study: ``minatar-published``; what was run of it before is only read.

    Raises:
        ConfigError: A run failed.
    """
    complete(study)
    for strategy, optimizer in OPTIMIZERS.items():
        yield mean_return(
            study,
            LAST.format(strategy=strategy, episodes=EPISODES),
            f"Breakout: return after {study.spec.budget.steps:,} frames, {optimizer}",
            PUBLISHED if optimizer == "RMSprop" else None,
        )


CLAIM = Claim(
    8,
    "MinAtar's DQN",
    f"DQN on MinAtar's Breakout has a return of {PUBLISHED:g} after 500,000 frames.",
    "Young & Tian 2019, learning curves",
    50,
    measure,
    ("minatar-published",),
)
