"""Samplers: which stored steps a batch is made of, with what exact probability.

A sampler here is a small frozen configuration; the state it needs lives in the buffer. N is the number of
stored steps, B the batch size asked for.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from replaylab import _core
from replaylab.errors import ConfigError
from replaylab.replay.schedules import Linear, Schedule, as_schedule


class Sampler(ABC):
    """What to draw; give one to `ReplayBuffer(sampler=...)`.

    Attributes:
        wants_feedback: Whether `update_priorities` changes what is drawn.
        law_needs_batch_size: Whether `probabilities` depends on the batch size.
    """

    wants_feedback: ClassVar[bool] = False
    law_needs_batch_size: ClassVar[bool] = False

    @abstractmethod
    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""


@dataclass(frozen=True)
class Online(Sampler):
    """The newest step alone: learning without replay. A batch has one row, whatever B is.

    Law: P(newest) = 1.
    """

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("newest")


@dataclass(frozen=True)
class SlidingWindow(Sampler):
    """The newest B steps, newest first; sampling while fewer are stored is an error.

    Law: P(i) = 1/B for the newest B, else 0.
    """

    law_needs_batch_size: ClassVar[bool] = True

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("window")


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every stored step alike, with replacement.

    Law: P(i) = 1/N. Source: Lin 1992; Mnih et al. 2015.
    """

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("uniform")


@dataclass(frozen=True)
class Combined(Sampler):
    """Uniform draws and always the newest step, as the batch's last row.

    Law of one row: ``(U/N + [i is newest]) / (U + 1)`` with U uniform draws; U = B for mode "plus" (B + 1
    rows), U = B − 1 for mode "replace" (B rows). Source: Zhang & Sutton 2017.
    """

    mode: Literal["plus", "replace"] = "plus"

    law_needs_batch_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mode not in ("plus", "replace"):
            raise ConfigError(f'`mode` of Combined must be "plus" or "replace", but got {self.mode!r}')

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig(f"combined_{self.mode}")


@dataclass(frozen=True)
class Prioritized(Sampler):
    """Proportional prioritized replay.

    Law: P(i) = pᵢ^α / Σ p^α with p = |δ| + ε. A batch is one draw from each of B equal segments of the
    total. A new step gets the largest priority now in the buffer, 1 if there is none. A step of priority 0
    is never drawn. p^α is held as a float32, inside its normal range (1e-38 to 3e38). Source: Schaul et al.
    2016.

    Importance weights: wᵢ = (N·P(i))^−β, divided by the largest weight of the buffer (default), of the
    batch, or by nothing.

    Attributes:
        alpha: Exponent α in [0, 1]; 0 makes the law uniform.
        beta: Exponent β of the weights in [0, 1], a number or a schedule over training progress. With a
            schedule that is not constant, `sample` needs ``progress``.
        epsilon: ε ≥ 0, added to every |TD error|.
        normalize: Which weight becomes 1: the largest of the "buffer", of the "batch", or "none".
    """

    alpha: float = 0.6
    beta: float | Schedule = field(default=Linear(0.4, 1.0))
    epsilon: float = 1e-6
    normalize: Literal["buffer", "batch", "none"] = "buffer"

    wants_feedback: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"`alpha` of Prioritized must be in [0, 1], but got {self.alpha}")
        low, high = as_schedule(self.beta).bounds
        if not (low >= 0.0 and high <= 1.0):
            raise ConfigError(f"`beta` of Prioritized must stay in [0, 1], but got {self.beta}")
        if not (self.epsilon >= 0.0 and math.isfinite(self.epsilon)):
            raise ConfigError(f"`epsilon` of Prioritized must be finite and not negative, but got {self.epsilon}")
        if self.normalize not in ("buffer", "batch", "none"):
            raise ConfigError(
                f'`normalize` of Prioritized must be "buffer", "batch" or "none", but got {self.normalize!r}'
            )

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        return _core.SamplerConfig("prioritized", self.alpha, self.epsilon, self.normalize)
