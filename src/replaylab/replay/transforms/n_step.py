"""n-step returns."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab import _core
from replaylab.arguments import FRACTION, check, whole
from replaylab.errors import FieldError
from replaylab.replay.transforms.transform import Fields, Transform, need_outcome


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

    makes: ClassVar[tuple[str, ...]] = ("discount", "n_steps")

    def __post_init__(self) -> None:
        check(self, steps=whole(most=2**31), gamma=FRACTION)

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Tell the core what it needs to know."""
        need_outcome(self, fields)
        if not any(path.split(".")[0] == "next_obs" for path in fields):
            raise FieldError("NStep needs the field `next_obs`, which becomes the last step's")
        config.n_step, config.gamma = self.steps, self.gamma
