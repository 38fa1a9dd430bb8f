"""The warning about a sampler that depends on feedback and gets none."""

import warnings

from replaylab import _core

LIMIT = 1000
"""Batches that may be drawn before the first feedback."""


class UnfedDraws:
    """Counts the batches that are drawn before the first feedback, and warns once at `LIMIT`.

    Priorities that differ without feedback, as those of a snapshot or of a storage do, are no reason for a warning.

    Args:
        sampler: Name of the sampler's class.
        priorities: Name of the sampler's priorities in the core's state; None: it has none.
    """

    def __init__(self, sampler: str, priorities: str | None) -> None:
        self._sampler, self._priorities, self._drawn = sampler, priorities, 0

    def counted(self, core: _core.Replay) -> "UnfedDraws | None":
        """Count a batch; return None if no more need to be counted."""
        self._drawn += 1
        if self._drawn < LIMIT:
            return self
        if self._priorities is None or not self._differ(core):
            warnings.warn(
                f"{self._sampler} draws by priorities, but {LIMIT:,} batches were drawn and none was fed back, so all "
                "steps still have the priority of a new step; call update_priorities(batch.id, td_error) after each "
                "update (with TorchRL update_tensordict_priority(batch)), or use a sampler without feedback, such as "
                "Uniform()",
                stacklevel=4,
            )
        return None

    def _differ(self, core: _core.Replay) -> bool:
        """Whether some stored steps have different priorities."""
        for name, values in core.state().items():
            if name.endswith(f".sampler.{self._priorities}"):
                positive = values[values > 0]
                if positive.size and positive.min() < positive.max():
                    return True
        return False
