"""The settings of deep Q-learning."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gymnasium import Space, spaces

from replaylab.errors import ConfigError
from replaylab.replay import Linear, Schedule

if TYPE_CHECKING:
    from replaylab.learners.population import Population


@dataclass(frozen=True)
class DQN:
    """Deep Q-learning with a replay buffer and a target network.

    The target of a drawn step is ``y = r + γ·(1 − terminated)·Q⁻(s', a')`` with Q⁻ the target network and
    ``a' = argmax Q(s', ·)`` (double) or ``argmax Q⁻(s', ·)``; `truncated` does not stop the bootstrap. The
    loss is the mean over the batch of ``weight·ℓ(y − Q(s, a))``, with ℓ(δ) = δ²/2 (squared), or for |δ| > 1
    |δ| − ½ (Huber).

    The defaults are for CartPole-v1 in 50,000 steps. Shorter target periods learn faster and then fall back,
    and below 100 updates the values diverge.

    Sources: Mnih et al. 2015; van Hasselt, Guez & Silver 2016 (double); Schaul et al. 2016 (weights).

    Attributes:
        hidden: Widths of the hidden layers.
        learning_rate: Of Adam.
        gamma: Discount γ.
        batch_size: B, drawn for each update.
        capacity: C, steps the replay buffer keeps.
        double: Whether the online network chooses the target's action.
        loss: ℓ.
        target_period: Updates between two copies of the online network to the target network.
        learning_starts: Environment steps before the first update.
        train_period: Environment steps between two turns of learning.
        gradient_steps: Updates in a turn of learning, each from a batch of its own.
        epsilon: Chance of a random action, a number or a schedule over training progress.
        max_grad_norm: Largest Euclidean norm of a replica's gradient; None: no bound.
    """

    hidden: tuple[int, ...] = (128,)
    learning_rate: float = 1e-3
    gamma: float = 0.99
    batch_size: int = 64
    capacity: int = 50_000
    double: bool = True
    loss: Literal["huber", "squared"] = "huber"
    target_period: int = 200
    learning_starts: int = 1_000
    train_period: int = 1
    gradient_steps: int = 1
    epsilon: float | Schedule = field(default=Linear(1.0, 0.05, until=0.1))
    max_grad_norm: float | None = 1.0

    online: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "capacity", "target_period", "learning_starts", "train_period", "gradient_steps"):
            _check(
                name,
                getattr(self, name),
                "a whole number of at least 1",
                _is_positive_int(getattr(self, name)),
            )
        _check("hidden", self.hidden, "widths of at least 1", all(map(_is_positive_int, self.hidden)))
        _check("learning_rate", self.learning_rate, "positive", _is_positive(self.learning_rate))
        _check("gamma", self.gamma, "in [0, 1]", 0.0 <= self.gamma <= 1.0)
        _check("loss", self.loss, '"huber" or "squared"', self.loss in ("huber", "squared"))
        if self.max_grad_norm is not None:
            _check("max_grad_norm", self.max_grad_norm, "positive, or None", _is_positive(self.max_grad_norm))
        low, high = self.epsilon.bounds if isinstance(self.epsilon, Schedule) else (self.epsilon, self.epsilon)
        _check("epsilon", self.epsilon, "a chance, in [0, 1]", 0.0 <= low <= high <= 1.0)
        if self.learning_starts < self.batch_size:
            raise ConfigError(
                f"`learning_starts` must be at least `batch_size`, but got (learning_starts="
                f"{self.learning_starts}, batch_size={self.batch_size}); the first batch needs so many steps"
            )

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> "Population":
        """Return new agents, replica r made from seeds[r] alone.

        Raises:
            ConfigError: Observations are in no Box, or actions are not Discrete.
        """
        from replaylab.learners.population import Population  # PyTorch, only now that it is needed

        if not isinstance(observation_space, spaces.Box):
            raise ConfigError(f"DQN needs observations in a Box, but they are in {observation_space}")
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(f"DQN needs Discrete actions, but they are in {action_space}")
        return Population(self, math.prod(observation_space.shape), int(action_space.n), seeds)


def _check(name: str, value: object, rule: str, holds: bool) -> None:
    if not holds:
        raise ConfigError(f"`{name}` of DQN must be {rule}, but got {value!r}")


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_positive(value: float) -> bool:
    return value > 0.0 and math.isfinite(value)
