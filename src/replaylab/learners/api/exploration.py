"""ε-greedy policies of action values; each replica has its own random stream."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from replaylab._core import epsilon_greedy
from replaylab.arguments import number
from replaylab.envs.batched import packed, unpack
from replaylab.learners.api.protocols import Obs, State, Step
from replaylab.learners.api.random_streams import Stream, generator
from replaylab.replay import Schedule, as_schedule, scheduled

CHANCE = scheduled(number("a chance, in [0, 1]", lambda chance: 0.0 <= chance <= 1.0))
"""The rule of exploration rates."""


class EpsilonGreedy:
    """Picks the best action, or with probability ε any action; ties are broken uniformly at random.

    Every step takes two numbers from each environment's stream, whether it explores or not; so a replica's draws at its
    t-th step depend only on its seed.

    Args:
        seeds: One for each replica, of which its `Stream.EXPLORATION` is used.
        envs: E, environments of each replica, each with its own stream.

    Attributes:
        choices: Number of actions, the first ones, among which it explores; None: all of them.
    """

    BLOCK = 1024
    """Steps drawn ahead at once; the numbers do not depend on it."""

    def __init__(self, seeds: Sequence[int], envs: int = 1) -> None:
        further = [(env,) if env else () for env in range(envs)]
        self._generators = [generator(seed, Stream.EXPLORATION, *env) for seed in seeds for env in further]
        self._next = self.BLOCK
        self.choices: int | None = None

    def __call__(self, q: npt.NDArray[np.floating[Any]], epsilon: float | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return actions int64 (R·E,) for action values (R·E, A) and ε, a number or (R·E,)."""
        if self._next == self.BLOCK:
            self._draw()
        draws = self._draws[self._next]
        self._next += 1
        return epsilon_greedy(q, epsilon, draws, self.choices or q.shape[1])

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of the streams."""
        before = self._before if self._next < self.BLOCK else packed(self._generators)
        return {"streams": before.copy(), "next": np.array(self._next)}

    def restore(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self._generators = unpack(state["streams"])
        if int(state["next"]) < self.BLOCK:
            self._draw()
        self._next = int(state["next"])

    def _draw(self) -> None:
        self._before = packed(self._generators)
        self._draws = np.stack([g.random((self.BLOCK, 2)) for g in self._generators], axis=-1)
        self._next = 0


def at(schedule: Schedule, progress: float | npt.NDArray[np.float64]) -> float | npt.NDArray[np.float64]:
    """Return a schedule's value at the progress of all replicas, or at that of each (R,)."""
    if isinstance(progress, float):
        return schedule(progress)
    return np.array([schedule(value) for value in progress.tolist()])


class EpsilonGreedyAgents(ABC):
    """Base of agents that act by action values: ε, and the greedy and ε-greedy policies.

    Args:
        epsilon: The learner's: a number or a schedule over training progress.
        actions: The action space, of A actions counted from its start.
        seeds: One for each replica.
        envs: E, environments in which each replica explores.

    Attributes:
        epsilon: Chance of a random action now, a number or float (R,).
        first_action: The number of the first of the A actions.
        updates: Number of calls of `update`.
    """

    def __init__(
        self, epsilon: float | Schedule, actions: spaces.Discrete, seeds: Sequence[int], envs: int = 1
    ) -> None:
        self._schedule = as_schedule(epsilon)
        self.epsilon: float | npt.NDArray[np.floating[Any]] = self._schedule(0.0)
        self.first_action, self._dtype = int(actions.start), actions.dtype
        self._explore = EpsilonGreedy(seeds, envs)
        self.updates = 0

    @abstractmethod
    def q_values(self, obs: Obs) -> npt.NDArray[np.floating[Any]]:
        """Return Q(s, ·), float (R, N, A), for observations (R, N, ...)."""

    def act(self, obs: Obs, explore: bool) -> npt.NDArray[np.integer[Any]]:
        """Return the best actions (R, N), the first of equal ones; with exploration (N = E) ε-greedy actions."""
        q = self.q_values(obs)
        index = (
            self._explore(q.reshape(-1, q.shape[-1]), self.epsilon).reshape(q.shape[:2]) if explore else q.argmax(-1)
        )
        actions = index + self.first_action if self.first_action else index
        return actions.astype(self._dtype, copy=False)

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set ε."""
        self.epsilon = at(self._schedule, progress)

    def observe(self, step: Step) -> None:  # noqa: B027 - the default of learners that learn from batches
        """Do nothing with a new step."""

    def tell_epsilon(self, epsilon: float) -> None:
        """Replace ε permanently, for example by that of actors, which act in place of these agents."""
        self._schedule = as_schedule(epsilon)
        self.epsilon = epsilon

    def explore_first(self, choices: int) -> None:
        """Explore only the first `choices` actions."""
        self._explore.choices = choices

    def exploration_metrics(self) -> Mapping[str, npt.ArrayLike]:
        """Return ε."""
        return {"rollout/exploration_rate": self.epsilon}

    def index_of(self, action: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        """Return the indices of actions, from 0 to A − 1."""
        return action - self.first_action if self.first_action else action

    def exploration_state(self) -> State:
        """Return the state of the exploration streams."""
        return {f"exploration_{name}": array for name, array in self._explore.state().items()}

    def restore_exploration(self, state: State) -> None:
        """Continue from what `exploration_state` returned."""
        self._explore.restore({name: state[f"exploration_{name}"] for name in ("streams", "next")})
