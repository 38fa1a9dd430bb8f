"""Error rates of the complete decision of a study with one primary contrast, by simulations of known truth.

A study has seven arms (S1, T1, Z1, S8, T8, Z8, U1) on two environments. Each seed adds something to all arms of an
environment; arms have their own spreads, up to 1 : 5, and runs are normal, skewed, or of two kinds (solved or not).
From the arms come the primary contrast D and the family, and from these what the study says.

    python -m tests.statistics.decision_procedure

prints the table that docs/explanation/statistics-appendix.md shows, of 2,000 studies in each row, and

    python -m tests.statistics.decision_procedure few

the table of few seeds: one environment, and the distributions that were found to be the worst.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from replaylab.statistics import Means, decisions

ARMS = ("S1", "T1", "Z1", "S8", "T8", "Z8", "U1")
ENVIRONMENTS = 2
D = {"S1": 0.5, "S8": -0.5, "T8": -1.0, "Z1": 0.5, "Z8": 0.5}
CONTRASTS = {
    "D": D,
    "dependence": {"S1": 0.5, "T1": 0.5, "S8": -0.5, "T8": -0.5},
    "choice": {"T1": 0.5, "T8": 0.5, "Z1": -0.5, "Z8": -0.5},
    "dependence by choice": {"S1": 1.0, "S8": -1.0, "T1": -1.0, "T8": 1.0},
    "unevenness": {"Z1": 0.5, "Z8": 0.5, "S1": -0.5, "S8": -0.5},
    "stratification": {"S1": 1.0, "U1": -1.0},
}
"""The first one is primary; it is in the family on each environment, and so are the others, on their mean."""

BOUND, ALPHA = 0.05, 0.05
SPREAD = 0.12
"""Standard deviation of an arm's run whose spread is 1."""


class Truth(NamedTuple):
    """A world: levels of arms (0 where not named) on each of one or two environments, spreads (1 where not named)."""

    levels: tuple[Mapping[str, float], ...] = (MappingProxyType({}),) * 2
    spreads: Mapping[str, float] = MappingProxyType({})
    kind: str = "normal"


class Rates(NamedTuple):
    """Shares of studies."""

    primary_wrong: float
    """D is called different though it is 0, or of the wrong sign."""

    family_wrong: float
    """Any contrast of the family is called different though it is 0, or of the wrong sign, or equivalent though it is
    not."""

    primary_different: float
    primary_equivalent: float
    family_equivalent_wrong: float
    """Any contrast of the family at or beyond its bound is called equivalent."""


def weights(environments: int = ENVIRONMENTS) -> np.ndarray:
    """Return the contrasts of a seed's arms, (K, environments, arms): D, D on each environment, and the others.

    With one environment D is not asked again on it.
    """
    rows = []
    for name, signs in CONTRASTS.items():
        row = np.array([signs.get(arm, 0.0) for arm in ARMS])
        rows.append(np.stack([row] * environments) / environments)
        if name == "D" and environments > 1:
            rows += [np.stack([row * (e == k) for k in range(environments)]) for e in range(environments)]
    return np.stack(rows)


def noise(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return draws of mean 0 and variance 1."""
    if kind == "skewed":
        return 1.0 - rng.exponential(size=shape)
    if kind == "lognormal":  # a few runs far above the others
        return (rng.lognormal(sigma=1.0, size=shape) - np.exp(0.5)) / np.sqrt((np.e - 1.0) * np.e)
    if kind == "two kinds":  # nine of ten runs solve the task
        return (np.where(rng.random(shape) < 0.9, 0.1, -0.9) + 0.05 * rng.normal(size=shape)) / np.sqrt(0.09 + 0.0025)
    if kind == "steady":  # one run in ten fails
        return np.where(rng.random(shape) < 0.9, 0.1, -0.9) / 0.3
    return rng.normal(size=shape)


def contrasts(truth: Truth, studies: int, seeds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return contrasts (studies, seeds, K) of simulated runs, and their true values (K,)."""
    levels = np.array([[level.get(arm, 0.0) for arm in ARMS] for level in truth.levels])
    spreads = SPREAD * np.array([truth.spreads.get(arm, 1.0) for arm in ARMS])
    environments = len(levels)
    runs = noise(truth.kind, (studies, seeds, environments, len(ARMS)), rng) * spreads
    runs += levels + SPREAD * rng.normal(size=(studies, seeds, environments, 1))
    flat = weights(environments).reshape(-1, environments * len(ARMS))
    return runs.reshape(studies, seeds, -1) @ flat.T, flat @ levels.ravel()


def rates(truth: Truth, *, studies: int, seeds: int, resamples: int = 999, seed: int = 0) -> Rates:
    """Return how often a study of this truth is wrong, and how often it tells."""
    means, true = contrasts(truth, studies, seeds, np.random.default_rng(seed))
    primary = decisions(means[..., :1], level=1 - ALPHA, resamples=resamples, seed=seed)
    inner = decisions(means[..., :1], level=1 - 2 * ALPHA, resamples=resamples, seed=seed)
    family = decisions(means[..., 1:], level=1 - ALPHA, resamples=resamples, seed=seed)
    too_small = _equivalent(family) & (np.abs(true[1:]) >= BOUND - 1e-9)
    return Rates(
        _wrong(primary, true[:1]).mean(),
        (_wrong(family, true[1:]) | too_small).any(axis=1).mean(),
        (primary.p < ALPHA).mean(),
        _equivalent(inner).mean(),
        too_small.any(axis=1).mean(),
    )


def _wrong(means: Means, true: np.ndarray) -> np.ndarray:
    sign = np.where(np.abs(true) < 1e-9, 0.0, np.sign(true))
    return (means.p < ALPHA) & (np.sign(means.estimate) != sign)


def _equivalent(means: Means) -> np.ndarray:
    return (means.low > -BOUND) & (means.high < BOUND)


WIDE = {"T1": 5.0, "Z8": 5.0, "U1": 3.0}
"""Spreads of 1 : 5 among arms."""

SHIFT = {"Z1": 0.05, "Z8": 0.05}
"""By which D is .05, the bound."""

TRUTHS = {
    "all levels equal": Truth(),
    "equal levels, spreads 1 : 5": Truth(spreads=WIDE),
    "equal levels, spreads 1 : 5, skewed": Truth(spreads=WIDE, kind="skewed"),
    "equal levels, spreads 1 : 5, two kinds of runs": Truth(spreads=WIDE, kind="two kinds"),
    "D = .05 on both environments": Truth((SHIFT, SHIFT)),
    "D = .05, spreads 1 : 5": Truth((SHIFT, SHIFT), WIDE),
    "D = .05, two kinds of runs": Truth((SHIFT, SHIFT), kind="two kinds"),
    "D = .1 and -.1": Truth(({"Z1": 0.1, "Z8": 0.1}, {"Z1": -0.1, "Z8": -0.1})),
    "every effect of the family at .05": Truth(({"T1": -0.05, "T8": -0.1, "U1": -0.05},) * 2),
}


ONE_ARM = {"T8": 5.0}
"""The arm that D counts most has five times the spread of the others."""

FEW_SEEDS = (10, 20, 30, 60, 120)
FEW_TRUTHS = {
    "all arms alike, normal": Truth(({},)),
    "one arm's spread × 5, normal": Truth(({},), ONE_ARM),
    "one arm's spread × 5, skewed": Truth(({},), ONE_ARM, "skewed"),
    "one arm's spread × 5, lognormal": Truth(({},), ONE_ARM, "lognormal"),
    "one arm's spread × 5, two kinds of runs": Truth(({},), ONE_ARM, "two kinds"),
    "one arm's spread × 5, steady arms of which one run in ten fails": Truth(({},), ONE_ARM, "steady"),
}
"""All levels are equal, on one environment."""


def few(studies: int = 2_000) -> None:
    """Print the table of few seeds."""
    print(f"| truth ({studies:,} studies) | " + " | ".join(f"{seeds} seeds" for seeds in FEW_SEEDS) + " |")
    print("|---" * (1 + len(FEW_SEEDS)) + "|")
    for name, truth in FEW_TRUTHS.items():
        wrong = [rates(truth, studies=studies, seeds=seeds) for seeds in FEW_SEEDS]
        cells = [f"{100 * r.primary_wrong:.1f} % ({100 * r.family_wrong:.1f} %)" for r in wrong]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main(studies: int = 2_000, seeds: int = 120) -> None:
    """Print the table."""
    print(f"| truth ({studies:,} studies of {seeds} seeds) | D wrong | family wrong | D different | D equivalent | "
          "family wrongly equivalent |\n|---|---|---|---|---|---|")  # fmt: skip
    for name, truth in TRUTHS.items():
        results = rates(truth, studies=studies, seeds=seeds)
        print(f"| {name} | " + " | ".join(f"{100 * rate:.1f} %" for rate in results) + " |")


if __name__ == "__main__":
    few() if sys.argv[1:] == ["few"] else main()
