"""What a learner gives back to the sampler, also where its network has diverged.

Shapes: R replicas, B rows of a batch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.replay import Replay


def give_back(replay: Replay, ids: npt.NDArray[np.int64], error: npt.NDArray[np.floating[Any]]) -> None:
    """Write what an update saw of steps into their priorities, (R, B) each.

    A network that has diverged sees NaN or infinity. That says nothing of a step, so its priority stays as it is; the
    other replicas learn on, as they do with samplers that take no feedback.
    """
    known = np.isfinite(error)
    if not known.all():
        ids, error = np.where(known, ids, -1), np.where(known, error, 0.0)
    replay.update_priorities(ids, error)
