"""Looking at the rows of a buffer: by id, and by slot."""

from typing import Any

import numpy.typing as npt

from replaylab.arguments import LARGEST_AXIS
from replaylab.errors import ConfigError, EmptyBufferError
from replaylab.replay.data.arrays import positive
from replaylab.replay.data.fields import without_missing
from replaylab.replay.introspection.introspective import Introspective


class Rows(Introspective):
    """The part of `ReplayBuffer` that shows what its steps hold."""

    def get(self, ids: npt.ArrayLike) -> dict[str, Any]:
        """Return the stored steps of these ids, as columns nested like the fields, ``[R] ... *field.shape``.

        Raises:
            IdError: A step is not stored, or not any more.
        """
        return self._layout.unflatten(iter(self._core.gather(ids, False).values()))

    def can_sample(self, batch_size: int) -> bool:
        """Whether enough is stored, in every replica, for `sample` to draw so many rows; nothing is drawn.

        Args:
            batch_size: B ≥ 1.

        Raises:
            ConfigError: `batch_size` is out of its range.
        """
        try:
            self._core.check_draw(positive("batch_size", batch_size, most=LARGEST_AXIS))
        except EmptyBufferError:
            return False
        return True

    @property
    def given_fields(self) -> dict[str, Any]:
        """The fields as `add` takes them: as declared, but stacks where `FrameStack` cuts single frames out of them."""
        return self._layout.unflatten(iter(self._layout.given.values()))

    @property
    def columns(self) -> dict[str, Any]:
        """Read-only views of every field by slot, ``[R] C *field.shape``; id i lies in slot i mod C.

        A derived ``next_obs`` and compressed fields are not among them (in a tuple: None); `get` has them. In a
        `Reservoir` a step may lie in any slot.

        Raises:
            ConfigError: The rows are in a `storage`, where others may write into them at any time.
        """
        if self.storage is not None:
            raise ConfigError(
                f"`columns` shows rows by slot, which those in {self.storage} do not have; use get(ids), which copies"
            )
        views = self._layout.unflatten(iter([self._core.column(i) for i in range(len(self._layout.flat))]))
        return {name: there for name, tree in views.items() if (there := without_missing(tree)) is not None}
