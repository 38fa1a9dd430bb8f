"""Ageing: uniform or prioritized draws in which older steps come less often."""

import math
from dataclasses import dataclass
from typing import Any

from replaylab import _core
from replaylab.arguments import POSITIVE, InvalidArgument, check, number, option, optional, text
from replaylab.errors import ConfigError
from replaylab.replay.samplers.mixture import OfParts
from replaylab.replay.samplers.prioritized import Prioritized
from replaylab.replay.samplers.sampler import COUNT, Sampler
from replaylab.replay.samplers.uniform import Uniform

STEPS = "steps"
"""The clock that counts steps."""

NO_WINDOW = 2.0**53


def _ageable(sampler: Any) -> Sampler:
    """A sampler that can be aged."""
    rule = "Uniform() or Prioritized(), with replace=True and block_length=1"
    if not isinstance(sampler, Uniform | Prioritized) or not sampler.replace:
        raise InvalidArgument(rule)
    if isinstance(sampler, Prioritized) and (sampler.core_kind != "prioritized" or sampler.block_length > 1):
        raise InvalidArgument(rule)
    return sampler


@dataclass(frozen=True)
class Aged(OfParts, Sampler):  # type: ignore[override]
    """Uniform or prioritized draws in which a step's share halves with every half-life of its age.

    Sampling probability: P(i) = (1 − f)·mᵢ·2^(−aᵢ/h) / Σ m·2^(−a/h) + f·mᵢ / Σ m, where the sums are over the newest
    `window` steps; P(i) = 0 for older ones. m is 1 for `Uniform` and p^α for `Prioritized`, a the age, h the half-life
    and f the floor. Source: none, exponential ageing; `Geometric` is that of `Uniform` without floor and window.

    Draws and updates take O(log N), because 2^(−aᵢ/h) is in proportion to 2^(tᵢ/h), with t the time at which a step was
    stored: no mass changes as time passes. Masses are float32 numbers relative to those of new steps. So a step that is
    126 to 158 half-lives old (at p^α = 1) has mass 0, and only the floor draws it; p^α is at most 2^94. The newest
    step has a mass unless its priority is 0. If every step with a mass has priority 0, only the floor draws; without
    one, `sample` raises `EmptyBufferError`.

    Importance weights of `Prioritized` are (N·P(i))^−β with this P, divided as its `normalize` says: with β = 1 they
    undo the ageing in the mean. With the default "buffer" the oldest step's weight is the largest, so those of new
    steps are about 2^(−β·N/h); ``normalize="batch"`` keeps the step size.

    Attributes:
        sampler: `Uniform` or `Prioritized` (or `ReLo`), with ``replace=True`` and ``block_length=1``.
        half_life: h > 0, the age at which a step's mass is half as large, in units of the clock. None: no ageing, which
            needs a window. Default: None.
        floor: f in [0, 1), the share of the probability by which steps of the window are drawn without ageing; their
            rows come first in a batch. With ``Prioritized`` it excludes `Sequence`. Default: 0.0.
        window: Newest steps that can be drawn; None: all. New steps get the largest priority of the window. Removed
            steps count in the window, as in ages. Default: None.
        clock: "steps": time is a step's id, so that age is the number of steps stored since, of all environments. Or
            the name of a stored scalar field, int32, int64, float32 or float64, that never decreases, such as the
            version of the policy. Of several processes that add to one storage, steps with an earlier time than steps
            before them count as equally late. Default: "steps".

    Raises:
        ConfigError: An option is invalid, or both `half_life` and `window` are None.
    """

    sampler: Sampler
    half_life: float | None = option(optional(POSITIVE), None)
    floor: float = option(number("in [0, 1)", lambda share: 0.0 <= share < 1.0), 0.0)
    window: int | None = option(optional(COUNT), None)
    clock: str = option(text, STEPS)

    needs_order = True  # type: ignore[misc]

    def __post_init__(self) -> None:
        check(self, sampler=_ageable)
        if self.half_life is None and self.window is None:
            raise ConfigError(
                "`half_life` or `window` of Aged must be given, but both are None; pass half_life=..., for example a "
                "tenth of the capacity"
            )

    @property
    def parts(self) -> tuple[Sampler, ...]:  # type: ignore[override]
        """The sampler."""
        return (self.sampler,)

    @property
    def draws_sequences(self) -> bool:  # type: ignore[override]
        """Unless weights of a mixture of two distributions were needed for sequences."""
        return self.floor == 0.0 or isinstance(self.sampler, Uniform)

    @property
    def clock_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The field that is the clock, if one is."""
        return () if self.clock == STEPS else (self.clock,)

    @property
    def scheduled(self) -> float | Any:
        """Exponent β of the importance weights."""
        return self.sampler.scheduled

    def core_config(self) -> _core.SamplerConfig:
        """Return what the compiled core needs to know."""
        kind, inner = "aged", self.sampler
        if isinstance(inner, Uniform):
            kind, inner = "aged_uniform", Prioritized(alpha=0.0, stratified=inner.stratified)
        ageing = {
            "half_life": self.half_life or math.inf,
            "floor": self.floor,
            "window": self.window or NO_WINDOW,
            "by_field": bool(self.clock_fields),
        }
        return _core.SamplerConfig(kind, inner.core_options() | ageing, clock="".join(self.clock_fields))
