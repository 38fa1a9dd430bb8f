"""Hindsight with the functions of the training environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from replaylab.arguments import NOT_NEGATIVE, check, one_of
from replaylab.replay import Hindsight, Transform


@dataclass(frozen=True)
class EnvHindsight:
    """`Hindsight` with the environment's own functions for rewards and terminations.

    Attributes:
        strategy: Choice of new goals; see `Hindsight`.
        ratio: Relabelled rows for each that is not.
    """

    strategy: Literal["final", "future", "episode"] = "future"
    ratio: float = 4.0

    def __post_init__(self) -> None:
        check(self, strategy=one_of(*Hindsight.strategies), ratio=NOT_NEGATIVE)

    def of(self, env: Any) -> Hindsight:
        """Return the transform for a vector environment.

        Raises:
            ConfigError: It has no `compute_reward` and `compute_terminated`.
        """
        from replaylab.envs import goal_functions  # Gymnasium, which reading a study's settings does without

        return Hindsight(*goal_functions(env), self.strategy, self.ratio)


def transforms_for(env: Any, transforms: Sequence[Transform | EnvHindsight]) -> list[Transform]:
    """Return transforms with an environment's own functions filled in."""
    return [transform.of(env) if isinstance(transform, EnvHindsight) else transform for transform in transforms]
