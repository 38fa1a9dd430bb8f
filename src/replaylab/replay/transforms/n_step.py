"""n-step returns."""

from dataclasses import dataclass
from typing import ClassVar

from replaylab import _core
from replaylab.arguments import FRACTION, option, text, tuple_of, whole
from replaylab.errors import FieldError
from replaylab.replay.transforms.transform import OUTCOME, Fields, Transform, inside, need_outcome


@dataclass(frozen=True)
class NStep(Transform):
    """n-step returns, put together at draw time.

    From the drawn step on, up to K steps are taken together: fewer if the episode ends (terminated or truncated) or
    the newest stored step of that environment is reached. A batch then holds

    * ``reward`` = Σ_{k<n} γ^k·r_{t+k}, with n ≤ K the steps taken;
    * ``next_obs``, ``terminated`` and ``truncated`` of the last of them;
    * ``discount`` float32: γ^n, or 0 if that one terminated, so the target is ``reward + discount·Q(next_obs)``;
    * ``n_steps`` int64: n.

    All other fields are those of the drawn step, except fields named ``next_*`` and those in `last`: like ``next_obs``
    they come from the last step. So ``next_action_mask`` belongs to ``next_obs``. Source: Watkins 1989; Hessel et al.
    2018 (K = 3).

    Attributes:
        steps: K ≥ 1.
        gamma: Discount γ in [0, 1].
        last: Further fields that come from the last step, by name or, inside a nested field, by path.
    """

    steps: int = option(whole(most=2**31), 3)
    gamma: float = option(FRACTION, 0.99)
    last: tuple[str, ...] = option(tuple_of(text, "a tuple of field names"), ())

    makes: ClassVar[tuple[str, ...]] = ("discount", "n_steps")

    def configure(self, config: _core.TransformConfig, fields: Fields) -> None:
        """Set the options of the core."""
        manual = not any(name in fields for name in OUTCOME[1:])  # `check_ends` checks that this is intended
        need_outcome(self, fields, OUTCOME[:1] if manual else OUTCOME)
        if not any(path.split(".")[0] == "next_obs" for path in fields):
            raise FieldError("NStep needs the field `next_obs`, which becomes the last step's")
        for name in self.last:
            if not any(inside(path, name) for path in fields) or name.split(".")[0] in ("obs", "reward"):
                raise FieldError(
                    "`last` of NStep must name declared fields other than `obs` and `reward`, which cannot come from "
                    f"the last step, but got {name!r}"
                )
        config.n_step, config.gamma = self.steps, self.gamma
        config.last = [i for i, path in enumerate(fields) if self.takes_last(path)]

    def takes_last(self, path: str) -> bool:
        """Return whether the value of a field or column comes from the last step of the return."""
        return path in OUTCOME[1:] or path.startswith("next_") or any(inside(path, name) for name in self.last)
