"""Published returns of deep Q-learning on MinAtar, with this one at as many frames.

    python -m examples.published.minatar_returns

Claim: DQN on MinAtar returns 8.3 on Breakout after 500,000 frames; 16, 46 and 3.0 on three games over a million
Source: Young & Tian 2019, learning curves; Obando-Ceron & Castro 2021, figure on MinAtar
Minutes: 170

Runs what is missing of two shipped studies in results/. `minatar-published` has Young & Tian's settings, and the same
with Adam in place of RMSprop; a run's figure is the mean return of its last 100 training episodes, explored with
ε = .1. `minatar-million` has Obando-Ceron & Castro's settings; a run's figure is the mean return of its training
episodes. A figure counts as reproduced unless the 95 % interval of our mean over the runs is below the published
return. The published returns are read from figures, to about .1 on Breakout and 1 on the other games.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from examples.published.figures import Figure, show, t_interval

from replaylab.study import Study

LAST_EPISODES = """
select avg(value) from (
    select seed, value, row_number() over (partition by seed order by step desc) as back
    from results where metric = 'rollout/ep_rew' and strategy = '{}'
) where back <= 100 group by seed order by seed
"""
ALL_EPISODES = """
select avg(value) from results
where metric = 'rollout/ep_rew' and environment = 'replaylab/MinAtar-{}-v1' group by seed order by seed
"""
OPTIMIZERS = {"uniform-rmsprop": ("RMSprop", 8.3), "uniform": ("Adam", None)}
"""Name of the optimizer, and the published return, by strategy of the study."""
MILLION = {"SpaceInvaders": 16.0, "Freeway": 46.0, "Breakout": 3.0}
"""Published return, by the game's name in its id."""


def figures(results: Path = Path("results")) -> Iterator[Figure]:
    """Yield the returns of both studies; their folders are in `results`."""
    study = completed("minatar-published", results)
    for strategy, (optimizer, published) in OPTIMIZERS.items():
        yield mean_return(study, LAST_EPISODES.format(strategy), f"Breakout, {optimizer}: last 100 episodes", published)
    study = completed("minatar-million", results)
    for game, published in MILLION.items():
        yield mean_return(study, ALL_EPISODES.format(game), f"{game}: the first million frames", published)


def completed(name: str, results: Path) -> Study:
    """Run what is missing of a shipped study, and return it."""
    study = Study.from_toml(name, results / name)
    if not study.run().complete:
        raise SystemExit(f"runs of {name} failed; their tracebacks are in {study.folder / 'failures'}")
    return study


def mean_return(study: Study, query: str, quantity: str, published: float | None) -> Figure:
    """Return the mean over runs of the returns that an SQL query gives, one for each run."""
    returns = np.array(study.query(query).fetchall(), np.float64)[:, 0]
    low, high = t_interval(returns)
    agrees, text = (None, "") if published is None else (high >= published, f"{published:g}")
    return Figure(quantity, text, float(returns.mean()), agrees, (low, high), f"mean of {len(returns)} runs, 95 %")


if __name__ == "__main__":
    raise SystemExit(show(figures()))
