"""The settings of distributed training, beside those of what is trained."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replaylab.arguments import NOT_NEGATIVE, POSITIVE, SHARE, check, whole
from replaylab.distributed.ray_session import ray_share

_MOST = 100_000
"""Actors, or environments of one, at most."""


DEPTH = 2
"""Calls on their way to each actor: while one's answer travels, the next is at work."""


@dataclass(frozen=True)
class Actors:
    """The actors that step environments.

    Attributes:
        count: N.
        envs: E, environments of each, stepped together.
        unroll: Time steps that an actor takes with the same weights, and stores in one call. Two such calls are on
            their way to each actor, so weights are at most that much older.
        epsilon: ε of the first of the N·E environments; with values of Discrete actions alone.
        alpha: Environment i of M acts at random with chance ε^(1 + α·i/(M − 1)) (Horgan et al. 2018, equation 1).
        publish_every: Updates that the weights which an actor is given may be behind the learner's.
        cores: That Ray reserves for each actor. 0: it places them anywhere.
    """

    count: int = 4
    envs: int = 1
    unroll: int = 16
    epsilon: float = 0.4
    alpha: float = 7.0
    publish_every: int = 8
    cores: float = 0.0

    def __post_init__(self) -> None:
        counts = {"count": whole(most=_MOST), "envs": whole(most=_MOST), "unroll": whole(most=1_000_000)}
        check(self, **counts, publish_every=whole(), epsilon=SHARE, alpha=NOT_NEGATIVE, cores=ray_share)

    @property
    def environments(self) -> int:
        """M = N·E."""
        return self.count * self.envs

    def epsilons(self) -> npt.NDArray[np.float64]:
        """Return the chance of a random action in each environment, (N, E).

        Example:
            >>> Actors(4).epsilons().ravel().round(4).tolist()
            [0.4, 0.0472, 0.0056, 0.0007]
        """
        places = np.arange(self.environments) / max(self.environments - 1, 1)
        return np.asarray(self.epsilon ** (1.0 + self.alpha * places)).reshape(self.count, self.envs)


@dataclass(frozen=True)
class Shards:
    """The shards of the replay; see `RemoteReplay`.

    Attributes:
        count: S.
        placement: Where they are: None, "spread", or a node id for each.
        prefetch: Batches that are on their way beside the one that the learner waits for.
        snapshot_period: Seconds between two snapshots of a shard, where training has a folder for checkpoints.
    """

    count: int = 2
    placement: str | Sequence[str] | None = None
    prefetch: int = 2
    snapshot_period: float = 60.0

    def __post_init__(self) -> None:
        check(self, count=whole(most=_MOST), prefetch=whole(0, 1000), snapshot_period=POSITIVE)
