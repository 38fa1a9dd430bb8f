"""Transforms: what a drawn step becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from replaylab.errors import ConfigError, FieldError
from replaylab.replay.fields import Field


class Transform:
    """Base of the transforms; give some to `ReplayBuffer(transforms=...)`."""


@dataclass(frozen=True)
class NStep(Transform):
    """n-step returns, put together at draw time.

    From the drawn step on, up to K steps are taken together: fewer if the episode ends (terminated or truncated) or
    the newest stored step of that environment is reached. A batch then holds

    * ``reward`` = Σ_{k<n} γ^k·r_{t+k}, with n ≤ K the steps taken;
    * ``next_obs``, ``terminated`` and ``truncated`` of the last of them;
    * ``discount`` float32: γ^n, or 0 if that one terminated, so the target is ``reward + discount·Q(next_obs)``;
    * ``n_steps`` int64: n.

    All else is of the drawn step itself. Source: Watkins 1989; Hessel et al. 2018 (K = 3).

    Attributes:
        steps: K ≥ 1.
        gamma: Discount γ in [0, 1].
    """

    steps: int = 3
    gamma: float = 0.99

    def __post_init__(self) -> None:
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise ConfigError(f"`steps` of NStep must be a whole number of at least 1, but got {self.steps!r}")
        if not 0.0 <= self.gamma <= 1.0:
            raise ConfigError(f"`gamma` of NStep must be in [0, 1], but got {self.gamma!r}")


def n_step_of(transforms: Sequence[Transform], fields: Mapping[str, Field]) -> NStep | None:
    """Return the n-step transform among the given, after checking that the fields allow it.

    Raises:
        ConfigError: Something else than a transform is given, or two of a kind.
        FieldError: A field it needs is not declared so, or one it makes is declared already.
    """
    if not all(isinstance(one, NStep) for one in transforms) or len(transforms) > 1:
        raise ConfigError(f"`transforms` must hold at most one NStep, but got {list(transforms)!r}")
    if not transforms:
        return None
    needed = {"reward": Field(), "terminated": Field((), np.bool_), "truncated": Field((), np.bool_)}
    for name, field in needed.items():
        if fields.get(name) != field:
            raise FieldError(f"NStep needs the field `{name}` declared as Field((), {field.dtype})")
    if not any(path.split(".")[0] == "next_obs" for path in fields):
        raise FieldError("NStep needs the field `next_obs`, which becomes the last step's")
    for name in ("discount", "n_steps"):
        if name in fields:
            raise FieldError(f"NStep makes the column `{name}` itself; give the field another name")
    return next(one for one in transforms if isinstance(one, NStep))
