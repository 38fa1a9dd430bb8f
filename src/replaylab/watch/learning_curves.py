"""Learning curves over episodes: every seed, and their smoothed mean."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from replaylab.arguments import checked, instance, mapping, optional, reals, takes, text
from replaylab.errors import ConfigError
from replaylab.learners.metrics.metrics_table import Metrics
from replaylab.plotting.palette import line_styles
from replaylab.plotting.svg import style
from replaylab.watch.smoothing import ewma

Floats = npt.NDArray[np.float64]


@takes(metrics=instance(Metrics, "Metrics, as `train` returns them"), metric=text)
def by_episode(metrics: Metrics, metric: str = "rollout/ep_rew") -> Floats:
    """Return a metric that has one row an episode as float64 (R, N), NaN where a seed had fewer than N episodes.

    Seeds are in ascending order.
    """
    columns = metrics.columns
    rows = columns["metric"] == metric
    seeds, values = columns["seed"][rows], columns["value"][rows].astype(np.float64)
    of_seed = [values[seeds == seed] for seed in np.unique(columns["seed"])]
    table = np.full((len(of_seed), max(map(len, of_seed), default=0)), np.nan)
    for row, own in zip(table, of_seed, strict=True):
        row[: len(own)] = own
    return table


@takes(returns=mapping, baseline=optional(text), unit=text)
def learning_curves(
    returns: Mapping[str, npt.ArrayLike], *, baseline: str | None = None, span: float = 100.0, unit: str = "return"
) -> Figure:
    """Draw returns over episodes: each seed's `ewma` thin, their mean bold.

    The mean ends where the first seed does, so that it is always one of the same seeds. The report of a study
    says how certain a difference is.

    Args:
        returns: By a strategy's name the returns of each episode, (N,) or (R, N), as `by_episode` gives them.
        baseline: The strategy drawn dashed in grey; None: the first.
        span: Of the average, in episodes.
        unit: Of the vertical axis.

    Raises:
        ConfigError: There is no strategy, or no such baseline.
    """
    names = list(returns)
    if not names or (baseline is not None and baseline not in names):
        raise ConfigError(f"`baseline` must be one of the strategies given, {names}, but got {baseline!r}")
    chosen = line_styles(names, baseline if baseline is not None else names[0])
    with style():
        figure = Figure(figsize=(760 / 72, 350 / 72), layout="constrained")
        ax = figure.subplots()
        longest, means = 1, []
        for name, values in returns.items():
            smooth = ewma(np.atleast_2d(checked(f"returns[{name!r}]", values, reals("N"))), span)
            episodes, line_style = np.arange(1, smooth.shape[1] + 1), chosen[name]
            longest = max(longest, len(episodes))
            if len(smooth) > 1:
                ax.plot(episodes, smooth.T, "-", color=line_style.light, lw=0.6, alpha=0.3)
            ax.plot(episodes, smooth.mean(0), linestyle=line_style.dashes, color=line_style.light, lw=2.4)
            means.append(ax.lines[-1])
        ax.set(xlim=(0, longest), xlabel="episode", ylabel=f"{unit}, moving average (span {span:g})")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        keys = [str(i) for i in range(len(names))]  # matplotlib leaves out names that begin with _
        legend = figure.legend(means, keys, loc="outside upper left", ncols=4, handlelength=2.2)
        for entry, name in zip(legend.get_texts(), names, strict=True):
            entry.set(text=name, parse_math=False)
        return figure
