"""Hindsight with the functions of whatever environment is trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from replaylab.arguments import NOT_NEGATIVE, check, one_of
from replaylab.errors import ConfigError
from replaylab.replay import Hindsight, Transform


@dataclass(frozen=True)
class EnvHindsight:
    """`Hindsight` whose rewards and terminations are what the environment itself says of a goal.

    Attributes:
        strategy: Which goals; see `Hindsight`.
        ratio: Relabelled rows for each that is not.
    """

    strategy: Literal["final", "future", "episode", "random"] = "future"
    ratio: float = 4.0

    def __post_init__(self) -> None:
        check(self, strategy=one_of(*Hindsight.strategies), ratio=NOT_NEGATIVE)

    def of(self, env: Any) -> Hindsight:
        """Return the transform for a vector environment.

        Raises:
            ConfigError: It does not offer `compute_reward` and `compute_terminated`.
        """
        return Hindsight(
            _offered(env, "compute_reward"), _offered(env, "compute_terminated"), self.strategy, self.ratio
        )


def transforms_for(env: Any, transforms: Sequence[Transform | EnvHindsight]) -> list[Transform]:
    """Return transforms with an environment's own functions filled in."""
    return [one.of(env) if isinstance(one, EnvHindsight) else one for one in transforms]


def _offered(env: Any, name: str) -> Any:
    function = getattr(env.unwrapped, name, None)
    if function is not None:
        return function
    try:
        return env.get_attr(name)[0]
    except AttributeError:
        raise ConfigError(
            f"hindsight needs an environment with goals, one that offers {name}(achieved_goal, desired_goal, info), "
            f"but {env.spec.id if env.spec else env} does not; use one such as replaylab/BitFlip-v0"
        ) from None
