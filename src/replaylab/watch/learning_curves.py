"""Learning curves over episodes: every seed, and their smoothed mean; moving averages for all seeds at once."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from replaylab.arguments import checked, instance, mapping, number, optional, reals, takes, text, whole
from replaylab.errors import ConfigError
from replaylab.learners.metrics import Metrics, check_name
from replaylab.plotting.palette import line_styles
from replaylab.plotting.svg import style

Floats = npt.NDArray[np.float64]


@takes(values=reals("T"), span=number("at least 1", lambda span: 1.0 <= span < math.inf))
def ewma(values: npt.ArrayLike, span: float = 100.0) -> Floats:
    """Return the exponentially weighted moving average along the last axis.

    ``y_t = Σᵢ (1−α)ⁱ x_{t−i} / Σᵢ (1−α)ⁱ`` for i = 0 … t, with α = 2/(span + 1): unlike in a plain recursion, the
    first values are not weighted too much. It equals pandas' ``ewm(span=span, adjust=True).mean()`` if no value is
    missing; after a NaN all results are NaN.

    Args:
        values: (..., T).
        span: At least 1; half of the weight is on about the last ``span / 3`` values.

    Returns:
        float64 (..., T).

    Example:
        >>> ewma([1.0, 2.0, 3.0], span=3).round(4).tolist()
        [1.0, 1.6667, 2.4286]
    """
    from scipy.signal import lfilter  # takes a second, also in worker processes that smooth nothing

    x = np.asarray(values, np.float64)
    keep = 1.0 - 2.0 / (span + 1.0)
    if keep == 1.0:  # the span is so long that all weights are equal
        return running_mean(x, x.shape[-1])
    weights = (1.0 - keep ** np.arange(1, x.shape[-1] + 1)) / (1.0 - keep)
    sums: Floats = lfilter([1.0], [1.0, -keep], x, axis=-1)
    return sums / weights


@takes(values=reals("T"), window=whole())
def running_mean(values: npt.ArrayLike, window: int = 100) -> Floats:
    """Return the mean of the last `window` values along the last axis, at the beginning of all values so far.

    It uses running sums: after a NaN or an infinite value all results are NaN, and after a huge value small ones lose
    precision.

    Args:
        values: (..., T).
        window: At least 1.

    Returns:
        float64 (..., T).

    Example:
        >>> running_mean([1.0, 2.0, 3.0, 7.0], window=2).tolist()
        [1.0, 1.5, 2.5, 5.0]
    """
    sums = np.cumsum(np.asarray(values, np.float64), axis=-1)
    means: Floats = sums / np.minimum(np.arange(1, sums.shape[-1] + 1), window)
    means[..., window:] = (sums[..., window:] - sums[..., :-window]) / window
    return means


@takes(metrics=instance(Metrics, "Metrics, as `train` returns them"), metric=text)
def by_episode(metrics: Metrics, metric: str = "rollout/ep_rew") -> Floats:
    """Return a metric with one row per episode as float64 (R, N), NaN where a seed had fewer than N episodes.

    Seeds are in ascending order.

    Raises:
        ConfigError: The metric was not recorded, and its name is not one of the library's.
    """
    columns = metrics.columns
    rows = columns["metric"] == metric
    if not rows.any():
        check_name(metric, np.unique(columns["metric"]).tolist())
    seeds, values = columns["seed"][rows], columns["value"][rows].astype(np.float64)
    of_seed = [values[seeds == seed] for seed in np.unique(columns["seed"])]
    table = np.full((len(of_seed), max(map(len, of_seed), default=0)), np.nan)
    for row, seed_values in zip(table, of_seed, strict=True):
        row[: len(seed_values)] = seed_values
    return table


@takes(returns=mapping, baseline=optional(text))
def learning_curves(
    returns: Mapping[str, npt.ArrayLike], *, baseline: str | None = None, span: float = 100.0
) -> Figure:
    """Draw returns over episodes: the `ewma` of each seed as a thin line, their mean as a bold one.

    The mean ends where the first seed ends, so it is always over the same seeds. For intervals and tests of a
    difference see the report of a study.

    Args:
        returns: Returns of each episode by strategy, (N,) or (R, N), as `by_episode` returns them.
        baseline: The strategy drawn dashed; None: the first.
        span: Span of the average, in episodes.

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
        ax.set(xlim=(0, longest), xlabel="episode", ylabel=f"return, moving average (span {span:g})")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        keys = [str(i) for i in range(len(names))]  # matplotlib leaves out names that begin with _
        legend = figure.legend(means, keys, loc="outside upper left", ncols=4, handlelength=2.2)
        for entry, name in zip(legend.get_texts(), names, strict=True):
            entry.set(text=name, parse_math=False)
        return figure
