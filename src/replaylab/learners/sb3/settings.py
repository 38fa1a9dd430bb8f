"""The settings of an algorithm of Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from replaylab.arguments import check, mapping, text
from replaylab.learners.metrics import METRICS, Metric
from replaylab.learners.sb3 import algorithms

_KNOWN = {metric.name for metric in METRICS}

LOGGED = (
    Metric("train/actor_loss", "Loss of the actor", "return", "the actor's loss"),
    Metric("train/critic_loss", "Loss of the critics", "reward²", "the critics' loss, without importance weights"),
    Metric("train/ent_coef", "Entropy coefficient", "none", "α of the entropy bonus"),
    Metric("train/ent_coef_loss", "Loss of the entropy coefficient", "none", "of log α"),
    Metric("train/learning_rate", "Learning rate", "none", "of the optimisers"),
    Metric("replay/size", "Steps stored", "steps", "in the replay buffer"),
    Metric("replay/stale_updates", "Stale feedback", "steps", "TD errors of steps that had been overwritten, so far"),
)
"""Metrics that the library's algorithms and `ReplayLabBuffer` log in addition to those of other learners."""


@dataclass(frozen=True)
class SB3Settings:
    """The settings of `SB3`, where they are documented."""

    algorithm: str
    policy: str = "MlpPolicy"
    arguments: dict[str, Any] = field(default_factory=dict)
    code: str = ""

    def __post_init__(self) -> None:
        check(self, algorithm=text, policy=text, arguments=mapping, code=text)
        algorithm = algorithms.find(self.algorithm)
        algorithms.check_policy(algorithm, self.policy)
        complete = algorithms.completed(algorithm, self.arguments)
        object.__setattr__(self, "arguments", complete)
        object.__setattr__(self, "code", self.code or algorithms.code_of(self.algorithm, complete))

    @property
    def gamma(self) -> float | None:
        """The discount γ; None: the algorithm has none."""
        return self.arguments.get("gamma")

    @property
    def learning_starts(self) -> int:
        """Environment steps before the first update; 0: the algorithm has no such argument."""
        return int(self.arguments.get("learning_starts") or 0)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Logged metrics: those of the library's algorithms, and those that a custom class lists in `metrics`."""
        custom = getattr(algorithms.find(self.algorithm), "metrics", ())
        names = {metric.name for metric in custom} | _KNOWN
        return (*custom, *(metric for metric in LOGGED if metric.name not in names))
