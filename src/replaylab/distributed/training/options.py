"""Options of training by actors, in addition to those of what is trained."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from replaylab.arguments import NOT_NEGATIVE, POSITIVE, SHARE, check, one_of, optional, whole
from replaylab.distributed.ray_session import ray_share

_COUNT = whole(most=100_000)


@dataclass(frozen=True)
class Actors:
    """The actors, processes that step environments.

    Attributes:
        count: N actors.
        envs: E environments of each actor, stepped together: one forward pass of the policy serves all of them.
        unroll: Time steps that an actor takes with the same weights and stores in one call, at most; fewer if they
            take longer than a tenth of a second.
        epsilon: ε of the first of the M = N·E environments. Only for learners with values of Discrete actions.
        alpha: Environment i of M acts at random with probability ε^(1 + α·i/(M − 1)) (Horgan et al. 2018, equation 1).
        cores: Cores that Ray reserves for each actor. 0: Ray places actors anywhere.
    """

    count: int = 4
    envs: int = 8
    unroll: int = 16
    epsilon: float = 0.4
    alpha: float = 7.0
    cores: float = 0.0

    def __post_init__(self) -> None:
        check(self, count=_COUNT, envs=_COUNT, unroll=whole(most=1_000_000))
        check(self, epsilon=SHARE, alpha=NOT_NEGATIVE, cores=ray_share)

    @property
    def environments(self) -> int:
        """Number of environments of all actors, M = N·E."""
        return self.count * self.envs

    def epsilons(self) -> npt.NDArray[np.float64]:
        """Return the probability of a random action in each environment, (N, E).

        Example:
            >>> Actors(4, envs=1).epsilons().ravel().round(4).tolist()
            [0.4, 0.0472, 0.0056, 0.0007]
        """
        places = np.arange(self.environments) / max(self.environments - 1, 1)
        return np.asarray(self.epsilon ** (1.0 + self.alpha * places)).reshape(self.count, self.envs)


@dataclass(frozen=True)
class Shards:
    """The shards of the replay; see `RemoteReplay`.

    Attributes:
        count: S shards. One is fastest as long as its node has the memory and the network for all steps.
        placement: Where they are: None, or "spread".
        snapshot_period: Seconds between two snapshots of a shard, if the run is saved in a folder.
    """

    count: int = 1
    placement: Literal["spread"] | None = None
    snapshot_period: float = 60.0

    def __post_init__(self) -> None:
        check(self, count=_COUNT, placement=optional(one_of("spread")), snapshot_period=POSITIVE)
