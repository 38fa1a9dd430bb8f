"""ε-greedy exploration, each replica by its own random stream."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.envs.vector.generators import packed, unpack
from replaylab.learners.api.random_streams import Stream, generator


class EpsilonGreedy:
    """Picks the best action, or with chance ε any of them; of several best actions each as likely as the others.

    Every step takes two numbers from each replica's stream, whether it explores or not; so what a replica
    draws at its t-th step depends on its seed alone.

    Args:
        seeds: One for each replica, of which its `Stream.EXPLORATION` is used.
    """

    BLOCK = 1024
    """Steps drawn ahead at once; the numbers do not depend on it."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [generator(seed, Stream.EXPLORATION) for seed in seeds]
        self._next = self.BLOCK

    def __call__(self, q: npt.NDArray[np.floating[Any]], epsilon: float | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return actions int64 (R,) for action values (R, A) and ε, a number or (R,)."""
        if self._next == self.BLOCK:
            self._draw()
        explore, pick = self._draws[self._next].T
        self._next += 1
        action: npt.NDArray[np.int64] = q.argmax(1)
        best = q == q.max(1, keepdims=True)
        if np.count_nonzero(best) > len(q):
            ties = best.cumsum(1)
            action = (ties > (pick * ties[:, -1])[:, None]).argmax(1)
        np.copyto(action, pick * q.shape[1], where=explore < epsilon, casting="unsafe")
        return action

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return where the streams are."""
        before = self._before if self._next < self.BLOCK else packed(self._generators)
        return {"streams": before.copy(), "next": np.array(self._next)}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        self._generators = unpack(state["streams"])
        if int(state["next"]) < self.BLOCK:
            self._draw()
        self._next = int(state["next"])

    def _draw(self) -> None:
        self._before = packed(self._generators)
        self._draws = np.stack([g.random((self.BLOCK, 2)) for g in self._generators], axis=1)
        self._next = 0
