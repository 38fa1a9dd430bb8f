"""The settings of deep Q-learning."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from replaylab.arguments import (
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_FLOAT32,
    SHARE,
    InvalidArgument,
    check,
    flag,
    function,
    number,
    one_of,
    option,
    optional,
    text,
    tuple_of,
    whole,
)
from replaylab.errors import ConfigError
from replaylab.learners.api.exploration import CHANCE
from replaylab.learners.api.protocols import Loss
from replaylab.learners.dqn.layers import PixelNetworkName
from replaylab.learners.dqn.optimizers import Adam, Optimizer
from replaylab.replay import Linear, Schedule, scheduled

Precision = Literal["float32", "tf32", "bfloat16"]
"""In which products of PyTorch's networks are computed."""

MODULE = function("(observation space, number of actions)")


def _range(value: Any) -> tuple[float, ...]:
    """Check a pair of bounds, the second larger; either may be infinite."""
    rule = "a least and a larger most, or None"
    low, high = tuple_of(number(rule, lambda _: True), rule, 2, 2)(value)
    if low >= high:
        raise InvalidArgument(rule)
    return low, high


def _learning_rate(value: Any) -> float | Schedule:
    """A positive number, or a schedule of numbers that are not negative."""
    return scheduled(NOT_NEGATIVE if isinstance(value, Schedule) else POSITIVE)(value)


def _optimizer(value: Any) -> Optimizer:
    """An optimizer."""
    if not isinstance(value, Optimizer):
        raise InvalidArgument("an optimizer: Adam(...), RMSprop(...) or SGD(...)")
    return value


@dataclass(frozen=True)
class DQNSettings:
    """The settings of `DQN`, where they are documented."""

    hidden: tuple[int, ...] = (128,)
    learning_rate: float | Schedule = 1e-3
    gamma: float = 0.99
    batch_size: int = 64
    capacity: int = 50_000
    double: bool = True
    dueling: bool = False
    loss: Loss = "huber"
    target_period: int = 200
    tau: float = 1.0
    target_range: tuple[float, float] | None = None
    learning_starts: int = 1_000
    train_period: int = 1
    gradient_steps: int = 1
    epsilon: float | Schedule = field(default=Linear(1.0, 0.05, until=0.1))
    max_grad_norm: float | None = 1.0
    device: str = "cpu"
    module: Callable[[Any, int], Any] | None = None
    filters: int = 0
    pixel_network: PixelNetworkName = "nature"
    optimizer: Optimizer = Adam()  # noqa: RUF009 - frozen
    replay: Literal["host", "device"] = option(one_of("host", "device"), "host", later=True)
    envs: int = option(whole(), 1, later=True)
    precision: Precision = option(one_of(*get_args(Precision)), "float32", later=True)

    def __post_init__(self) -> None:
        counts = ("batch_size", "capacity", "target_period", "learning_starts", "train_period", "gradient_steps")
        check(self, **dict.fromkeys(counts, whole()), double=flag, dueling=flag, loss=one_of("huber", "squared"))
        check(
            self,
            hidden=tuple_of(whole(), "a sequence of layer widths, such as (64, 64) or, for one layer, (64,)"),
            filters=whole(0),
            device=text,
            module=optional(MODULE),
            optimizer=_optimizer,
            pixel_network=one_of(*get_args(PixelNetworkName)),
        )
        check(self, learning_rate=_learning_rate, gamma=FRACTION, tau=SHARE, epsilon=CHANCE)
        check(self, max_grad_norm=optional(POSITIVE_FLOAT32), target_range=optional(_range))
        if self.envs > 1 and self.replay == "host":
            raise ConfigError(f'`envs` of DQN must be 1 unless `replay` is "device", but got {self.envs}')
        if self.precision != "float32" and self.on_core:
            raise ConfigError(
                f'`precision` of DQN must be "float32" where the compiled core computes the network, but got '
                f"{self.precision!r}; set `device`"
            )
        if self.dueling and (self.module is not None or not self.hidden):
            why = "`hidden` is empty" if self.module is None else "`module` is given"
            raise ConfigError(f"`dueling` of DQN must be False where {why}, but got True")
        if self.filters and self.module is not None:
            raise ConfigError(f"`filters` of DQN must be 0 where `module` is given, but got {self.filters}")

    @property
    def on_core(self) -> bool:
        """Whether the compiled core computes the networks."""
        return self.module is None and self.device == "cpu" and self.replay == "host"
