"""Every metric that training writes: its name, title, unit and meaning; and the metrics of a run.

The recorder, the report, TensorBoard and the tables of the documentation read this one table; a name that is not in it
is refused when it is recorded. Your own learner or hook lists further ones in its attribute `metrics`.

This module imports nothing of the learners, so that a report needs no training code.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from replaylab.arguments import InvalidArgument, check, did_you_mean, one_of, optional, takes, text, whole
from replaylab.errors import ConfigError

When = Literal["episode", "evaluation", "update", "measures", "end", "listeners"]
"""When a metric is recorded: at the end of each episode, at each evaluation, at each logged update (`log_every`), with
the measures of batches (`measure_every`), once at the end of training; or never, but passed to hooks
(`Hook.on_metrics`) together with those of an update."""

TRACE_Q, TRACE_RETURN = "trace_q/", "trace_return/"
"""Prefixes of the names of a traced episode's rows, before the number of the step."""

VISITS = "visits/"
"""Prefix of the names of visits, before the state's number."""


def _name(value: Any) -> str:
    """Check a metric's name; the last part of a family's is in braces."""
    head, brace, tail = value.partition("{") if isinstance(value, str) else ("", "", "")
    family = not brace or (tail.endswith("}") and head[-1:] not in "0123456789")
    if not head or "}" in head or not family or tail.count("}") != len(brace):
        raise InvalidArgument(
            "a name such as train/entropy, or of a family such as visits/{state}, with a number for the braces"
        )
    return str(value)


@dataclass(frozen=True)
class Metric:
    """One metric, or a family of them whose last part is a number.

    Attributes:
        name: Name of its rows; ``visits/{state}`` stands for visits/0, visits/1 and so on.
        title: Title in figures and tables.
        unit: Unit of its values.
        meaning: Description in plain words.
        when: When it is recorded.
        axis: Label of a figure's vertical axis; empty: the unit.
        needs: The setting of training that it needs; empty: none.
        definition: Exact definition with its formula, if the meaning is not exact.
        uniform: Value for uniform draws, for measures of batches.
        source: The publication that defines it.
        tensorboard: Stable-Baselines3's name for it, if different.

    Raises:
        ConfigError: The name is invalid, or another attribute is not text.
    """

    name: str
    title: str
    unit: str
    meaning: str
    when: When = "update"
    axis: str = ""
    needs: str = ""
    definition: str = ""
    uniform: str = ""
    source: str = ""
    tensorboard: str = ""

    def __post_init__(self) -> None:
        texts = ("title", "unit", "meaning", "axis", "needs", "definition", "uniform", "source", "tensorboard")
        check(self, name=_name, when=one_of(*get_args(When)), **dict.fromkeys(texts, text))

    @property
    def prefix(self) -> str | None:
        """Prefix of the names of a family; None: a single metric."""
        head, brace, _ = self.name.partition("{")
        return head if brace else None


def _recorded(when: When, *metrics: Metric, needs: str = "") -> tuple[Metric, ...]:
    """Return metrics that are recorded at the same events; `needs` is the setting that all of them need."""
    return tuple(replace(metric, when=when, needs=needs or metric.needs) for metric in metrics)


_EPISODES = (
    Metric(
        "rollout/ep_rew",
        "Return while exploring",
        "reward",
        "undiscounted return, while exploring",
        axis="return of an episode",
    ),
    Metric("rollout/ep_len", "Episode length while exploring", "steps", "length"),
)

_EVALUATIONS = (
    Metric(
        "eval/mean_reward", "Greedy return", "reward", "mean undiscounted return of `eval_episodes` greedy episodes"
    ),
    Metric("eval/mean_ep_length", "Greedy episode length", "steps", "their mean length"),
    Metric(
        "eval/held_out_q",
        "Q traces: value of held-out states",
        "return",
        "mean of max Q(s, ·) over the held-out states",
        axis="mean of max Q",
        needs="held_out",
        source="Mnih et al. 2013",
    ),
    Metric(
        "eval/value_error",
        "Error of the Q values",
        "return",
        "root mean square of Q(s, a) − Q*(s, a)",
        axis="root mean square of Q − Q*",
        needs="value_error",
    ),
)

_TRAINING = (
    Metric("rollout/exploration_rate", "Exploration rate", "probability", "ε"),
    Metric(
        "train/loss",
        "Loss",
        "reward²",
        "mean over the batch of weight·ℓ(δ); beyond |δ| = 1 Huber's grows linearly",
        axis="loss",
    ),
    Metric(
        "train/q_mean",
        "Q traces: Q value of the drawn steps",
        "return",
        "mean Q(s, a) of the drawn rows, before the update",
        axis="mean Q",
    ),
    Metric("train/q_min", "Least Q value of the drawn steps", "return", "minimum"),
    Metric("train/q_max", "Largest Q value of the drawn steps", "return", "maximum"),
    Metric(
        "train/td_error_mean",
        "TD error of the drawn steps",
        "return",
        "mean |δ| of the drawn rows",
        axis="mean |TD error|",
    ),
    Metric("train/td_error_median", "Median TD error of the drawn steps", "return", "median"),
    Metric("train/td_error_max", "Largest TD error of the drawn steps", "return", "maximum"),
    Metric("train/td_error_std", "Spread of the TD errors of the drawn steps", "return", "standard deviation"),
    Metric("train/td_error_p25", "25th percentile of TD errors of the drawn steps", "return", "25th percentile"),
    Metric("train/td_error_p75", "75th percentile of TD errors of the drawn steps", "return", "75th percentile"),
    Metric("train/td_error_p95", "95th percentile of TD errors of the drawn steps", "return", "95th percentile"),
    Metric("train/updates", "Updates", "updates", "so far, online and from batches", tensorboard="train/n_updates"),
    Metric("replay/transitions_replayed", "Transitions replayed", "rows", "drawn so far"),
    Metric("replay/age_mean", "Age of the batch", "steps", "mean number of steps since the drawn rows were stored"),
    Metric("replay/weight_mean", "Importance weight", "none", "mean importance weight of the batch"),
    Metric(
        "visits/{state}",
        "Visits",
        "visits",
        "how often the replica was in the state, over all of training: as an episode began, or after a step",
        "end",
        needs="visits",
    ),
)

_TRACES = (
    Metric(
        "trace_q/{step}",
        "Q value at a step of a traced episode",
        "return",
        "Q(s, a) of the action taken, by the agents that took it",
    ),
    Metric(
        "trace_return/{step}",
        "Discounted return from a step of a traced episode",
        "return",
        "what followed the step in its episode: r_t + γ r_{t+1} + …, 0 after the last step; the rewards are the stored "
        "ones, from which the agents learn",
    ),
    Metric(
        "trace/q_minus_return",
        "Q value minus the discounted return that followed",
        "return",
        "mean over the steps of a traced episode",
        axis="mean of Q − return",
    ),
    *(
        Metric(f"trace/{name}", title, unit, "mean over the updates during a traced episode")
        for name, title, unit in (
            ("td_error_mean", "TD error in a traced episode", "return"),
            ("td_error_median", "Median TD error in a traced episode", "return"),
            ("td_error_max", "Largest TD error in a traced episode", "return"),
            ("td_error_std", "Spread of TD errors in a traced episode", "return"),
            ("insertion_error_mean", "TD error at insertion, in a traced episode", "return"),
            ("insertion_error_median", "Median TD error at insertion, in a traced episode", "return"),
            ("insertion_error_max", "Largest TD error at insertion, in a traced episode", "return"),
            ("insertion_error_std", "Spread of TD errors at insertion, in a traced episode", "return"),
            ("correlated_pairs", "Correlated pairs in a traced episode", "pairs"),
        )
    ),
)

_LISTENERS = (
    Metric("rollout/ep_rew_mean", "Mean return while exploring", "reward", "mean return of the newest 100 episodes"),
    Metric(
        "rollout/ep_len_mean", "Mean episode length while exploring", "steps", "mean length of the newest 100 episodes"
    ),
    Metric("time/total_timesteps", "Environment steps", "steps", "of the replica, so far"),
    Metric("time/episodes", "Episodes", "episodes", "of the replica, so far"),
    Metric("time/fps", "Speed", "steps/s", "steps of all replicas a second"),
)

_MEASURES = (
    Metric(
        "replay/effective_batch_size",
        "Effective batch size",
        "rows",
        "how many independent uniform rows tell as much about the gradient as a batch does, in rows; uniform draws: "
        "the batch size",
        definition="B · tr Var(g, uniform) / tr Var(g): how many independent uniform rows tell as much about the "
        "gradient as a batch does; g the mean gradient of a batch, weighted by w over its mean in the K batches",
        uniform="B",
    ),
    Metric(
        "replay/gradient_variance",
        "Variance of the gradient",
        "gradient²",
        "tr Var(g) over the K batches: the sum over parameters of the unbiased variance",
        uniform="the next",
    ),
    Metric(
        "replay/gradient_variance_uniform",
        "Variance of the gradient, uniform draws",
        "gradient²",
        "the same of the uniform batches",
    ),
    Metric(
        "replay/same_episode_share",
        "Pairs from one episode",
        "share",
        "share of a batch’s pairs of rows that come from one episode; uniform draws: about one in the number of stored "
        "episodes",
        definition="share of a batch's B(B − 1)/2 pairs that come from one episode",
        uniform="1 / number of stored episodes, about",
    ),
    Metric(
        "replay/smallest_gap",
        "Smallest gap",
        "steps",
        "smallest distance in time between two rows of a batch, 0 for duplicates",
        uniform="N/B², about",
    ),
    Metric(
        "replay/duplicate_share",
        "Duplicates",
        "share",
        "share of rows that repeat another of their batch",
        uniform="(B − 1)/2N, about",
    ),
    Metric(
        "replay/autocorrelation_time",
        "Autocorrelation time",
        "rows",
        "of the TD errors in the order drawn, in rows; independent draws: 1",
        definition="τ = 1 + 2Σρₖ, ρₖ the autocorrelation of δ over all K batches' rows in the order drawn",
        uniform="1",
        source="Geyer 1992",
    ),
    Metric(
        "replay/row_correlation_excess",
        "Excess correlation of rows",
        "cosine",
        "mean absolute correlation between a batch’s observations, whitened, minus that of uniform draws: 0 is as "
        "uniform draws",
        definition="mean of |z·z'| / |z||z'| over pairs of rows, minus that of the uniform batches; z the observation, "
        "whitened by the uniform rows",
        uniform="0",
    ),
    Metric(
        "replay/energy_distance",
        "Distance from the buffer",
        "standard deviations",
        "energy distance between a batch and uniform draws, in standard deviations of the observations; uniform "
        "draws: 0",
        definition="2E|z − u| − E|z − z'| − E|u − u'| between a batch and the uniform one, unbiased; whitened",
        uniform="0",
        source="Székely & Rizzo 2013",
    ),
    Metric(
        "replay/sampling_evenness",
        "Evenness of the sampling distribution",
        "share",
        "entropy of the drawing probabilities, 1 where all are equal",
        definition="entropy of P / ln N, the entropy as the mean of −ln P over the rows drawn",
        uniform="1",
    ),
    Metric(
        "replay/weight_effective_size",
        "Effective size of the weights",
        "rows",
        "rows of equal weight that are worth a batch’s importance weights",
        definition="(Σw)² / Σw² of a batch",
        uniform="B",
        source="Kish 1965",
    ),
    Metric(
        "replay/drawn_age_mean", "Age of drawn rows", "steps", "steps stored since a drawn row was", uniform="(N − 1)/2"
    ),
    Metric(
        "replay/end_share",
        "Episode ends",
        "share",
        "share of rows that are the last step of an episode, terminated or truncated",
        uniform="finished episodes / N",
    ),
    Metric(
        "replay/terminated_share",
        "Terminated rows",
        "share",
        "share of rows that terminated their episode",
        uniform="terminated episodes / N",
    ),
    Metric(
        "replay/steps_to_end_mean",
        "Steps to the end",
        "steps",
        "steps between a drawn row and the end of its episode, of episodes that had ended",
    ),
    Metric(
        "replay/moved_share",
        "Rows from a distant bin",
        "share",
        "share of all rows so far whose bin and its neighbours were empty; only of ByStepsToEnd, and 0 of tapes",
        definition="share of all rows so far with no step in their bin of ByStepsToEnd or next to it; 0 of tapes",
    ),
    Metric(
        "replay/never_replayed_share",
        "Never replayed",
        "share",
        "share of the stored steps that were never drawn",
        uniform="e^(−draws per step), about",
    ),
    Metric(
        "replay/replay_gini",
        "Gini of replay counts",
        "–",
        "how unevenly stored steps were drawn: 0 all alike, 1 all draws on one",
        source="Gini 1912",
    ),
    Metric(
        "replay/td_error_mean", "TD error of drawn rows", "reward", "mean absolute TD error, in the unit of the reward"
    ),
    Metric("replay/td_error_median", "Median TD error of drawn rows", "reward", "median of the same"),
    Metric("replay/td_error_max", "Largest TD error of drawn rows", "reward", "maximum of the same"),
    Metric("replay/td_error_std", "Spread of TD errors of drawn rows", "reward", "standard deviation of the same"),
    Metric(
        "replay/td_error_percentile",
        "Percentile of TD errors",
        "percent",
        "where the drawn rows’ TD errors stand among the buffer’s, in percent; uniform draws: 50",
        definition="mean percentile of the drawn rows' |δ| among the uniform rows'",
        uniform="50",
    ),
    Metric(
        "replay/td_error_gap",
        "Staleness of priorities",
        "reward",
        "absolute TD error now minus the one fed back when the row was drawn",
        definition="mean of |δ| now minus |δ| fed back when the row was drawn, half the time between two rounds ago on "
        "average: how stale priorities are",
    ),
    Metric(
        "replay/legacy_correlated_pairs",
        "Correlated pairs, as counted earlier",
        "pairs",
        "pairs of rows whose Pearson correlation over the observation's own numbers exceeds .8 in size",
        source="earlier notebooks",
    ),
)

METRICS: tuple[Metric, ...] = (
    *_recorded("episode", *_EPISODES),
    *_recorded("evaluation", *_EVALUATIONS),
    *_TRAINING,
    *_recorded("episode", *_TRACES, needs="trace_every"),
    *_recorded("measures", *_MEASURES, needs="measure_every"),
    *_recorded("listeners", *_LISTENERS),
)
"""Every metric that the library itself writes, in the order in which the documentation lists them."""


class MetricsRegistry:
    """Metrics by name.

    Args:
        further: Metrics of a custom learner or hook, in addition to the library's.

    Raises:
        ConfigError: Two metrics of different meaning have one name.

    Example:
        >>> REGISTRY["eval/mean_reward"].title
        'Greedy return'
        >>> REGISTRY["visits/17"].unit
        'visits'
        >>> "train/entropy" in REGISTRY
        False
    """

    def __init__(self, further: Iterable[Metric] = ()) -> None:
        self._single: dict[str, Metric] = {}
        self._families: dict[str, Metric] = {}
        for metric in (*METRICS, *further):
            place, key = (self._single, metric.name) if metric.prefix is None else (self._families, metric.prefix)
            _refuse_two(place.setdefault(key, metric), metric)
        for name, metric in self._single.items():
            _refuse_two(self._family(name) or metric, metric)

    def __contains__(self, name: str) -> bool:
        return name in self._single or self._family(name) is not None

    def __getitem__(self, name: str) -> Metric:
        """Return a metric, or the family that one belongs to.

        Raises:
            KeyError: No metric has this name.
        """
        metric = self._single.get(name) or self._family(name)
        if metric is None:
            raise KeyError(name)
        return metric

    def _family(self, name: str) -> Metric | None:
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        return self._families.get(head) if number and number == str(int(number)) else None


def _refuse_two(registered: Metric, metric: Metric) -> None:
    if registered != metric:
        raise ConfigError(
            f"`{metric.name}` is a name of two metrics, of {registered.meaning!r} and of {metric.meaning!r}; give "
            "yours another"
        )


REGISTRY = MetricsRegistry()
"""The library's own metrics."""


def did_you_mean_metric(wrong: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown metric: the nearest name, or the same number without zeros."""
    plain = re.sub(r"/0+(?=[0-9])", "/", wrong)
    if plain != wrong and plain in REGISTRY:
        return f"; did you mean `{plain}`?"
    return did_you_mean(wrong, names)


def check_name(metric: str, recorded: Iterable[str]) -> None:
    """Check the name of a metric of which a run recorded nothing, though it recorded others.

    Raises:
        ConfigError: It is not one of the library's metrics, or a member of a family; the message suggests the nearest.
    """
    if metric in REGISTRY and REGISTRY[metric].prefix is None:
        return
    names = set(recorded)
    listed = sorted({REGISTRY[name].name if name in REGISTRY else name for name in names})
    single = (known_metric.name for known_metric in METRICS if known_metric.prefix is None)
    raise ConfigError(
        f"`metric` must be a recorded metric, but got {metric!r}{did_you_mean_metric(metric, {*names, *single})} "
        f"Recorded: {', '.join(listed) or 'no rows'}"
    )


def taken(when: When) -> tuple[Metric, ...]:
    """Return the library's metrics that are recorded at these events."""
    return tuple(metric for metric in METRICS if metric.when == when)


@dataclass(frozen=True)
class Metrics:
    """The metrics of a run, in long form.

    Attributes:
        columns: ``seed`` int64, ``step`` int64 (environment steps of that replica so far; its episodes where the
            budget is in episodes), ``metric`` str, ``value`` float64; all of one length N.
    """

    columns: dict[str, npt.NDArray[np.generic]]

    def __len__(self) -> int:
        return len(self.columns["value"])

    @takes(metric=text, seed=optional(whole(0)))
    def of(self, metric: str, seed: int | None = None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the steps and values of one metric, of all seeds or of one; empty if the run did not record it.

        Raises:
            ConfigError: The metric was not recorded, and is not one that the library may record; or the seed has no
                rows.
        """
        rows = self.columns["metric"] == metric
        if not rows.any():
            check_name(metric, np.unique(self.columns["metric"]).tolist())
        if seed is not None:
            seed_rows = self.columns["seed"] == seed
            if len(self) and not seed_rows.any():
                listed = ", ".join(map(str, np.unique(self.columns["seed"])))
                raise ConfigError(f"`seed` must be one of the run: {listed}; got {seed!r}")
            rows &= seed_rows
        return self.columns["step"][rows].astype(np.int64), self.columns["value"][rows].astype(np.float64)

    def visits(self) -> npt.NDArray[np.int64]:
        """Return how often each seed acted in each state, int64 (R, S), seeds in ascending order.

        Raises:
            ConfigError: Visits were not counted.
        """
        rows = np.char.startswith(self.columns["metric"].astype(np.str_), VISITS)
        if not rows.any():
            raise ConfigError("`visits` needs a run that counts them; train with TrainingConfig(..., visits=True)")
        _, counts = visit_counts(*(self.columns[name][rows] for name in ("seed", "metric", "value")))
        return counts.astype(np.int64)


def visit_counts(
    seed: npt.NDArray[Any], metric: npt.NDArray[Any], value: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return seeds (R,), in ascending order, and their visits of each state (R, S), from rows of `VISITS`."""
    state = np.array([int(name[len(VISITS) :]) for name in metric.tolist()], np.intp)
    seeds, run = np.unique(seed, return_inverse=True)
    counts = np.zeros((len(seeds), int(state.max()) + 1))
    counts[run, state] = value
    return seeds.astype(np.int64), counts
