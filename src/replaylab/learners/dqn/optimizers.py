"""Optimizers: the rules that turn gradients into parameter steps.

Formulas, with gradient g, learning rate λ and averages m and v that start at 0, are those of `torch.optim`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from replaylab.arguments import POSITIVE_FLOAT32, check, flag, number

DECAY = number("in [0, 1)", lambda x: 0.0 <= x < 1.0)


class Optimizer(ABC):
    """Base of the optimizers `Adam`, `RMSprop` and `SGD`."""

    @abstractmethod
    def in_core(self) -> tuple[str, float, float, float]:
        """Return its name in the core, the decays of the gradients' and of their squares' average, and ε."""


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², step λ·m̂ / (√v̂ + ε), with m̂ and v̂ freed of their bias.

    Source: Kingma & Ba 2015.

    Attributes:
        beta1: Decay β₁ of the average of gradients.
        beta2: Decay β₂ of the average of squared gradients.
        epsilon: ε.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check(self, beta1=DECAY, beta2=DECAY, epsilon=POSITIVE_FLOAT32)

    def in_core(self) -> tuple[str, float, float, float]:
        """See `Optimizer`."""
        return "adam", self.beta1, self.beta2, self.epsilon


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop: m ← αm + (1 − α)g, v ← αv + (1 − α)g², step λ·g / (√(v − m²) + ε); not centred: without m.

    The defaults are DQN's of 2015, except for ε, which DQN added under the root.

    Sources: Hinton 2012; Graves 2013 (centred); Mnih et al. 2015; Young & Tian 2019.

    Attributes:
        decay: α.
        epsilon: ε.
        centered: Whether the squares are taken from the gradients' mean.
    """

    decay: float = 0.95
    epsilon: float = 0.01
    centered: bool = True

    def __post_init__(self) -> None:
        check(self, decay=DECAY, epsilon=POSITIVE_FLOAT32, centered=flag)

    def in_core(self) -> tuple[str, float, float, float]:
        """See `Optimizer`."""
        return "rmsprop", self.decay if self.centered else 1.0, self.decay, self.epsilon


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: m ← μm + g, step λ·m.

    Attributes:
        momentum: μ; 0: none.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        check(self, momentum=DECAY)

    def in_core(self) -> tuple[str, float, float, float]:
        """See `Optimizer`."""
        return "sgd", self.momentum, 0.0, 0.0
