"""Tabular temporal-difference learners: Q-learning, SARSA and Expected SARSA over R replicas at once.

Shapes: R replicas, B drawn steps, S states, A actions.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from replaylab._core import update_tables
from replaylab.arguments import FINITE, FRACTION, NOT_NEGATIVE, check, flag, number, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.learners.api.exploration import CHANCE, EpsilonGreedyAgents
from replaylab.learners.api.protocols import Probe, State, Step, ValueUpdate
from replaylab.learners.api.random_streams import Stream, generator, sequence
from replaylab.replay import Batch, Schedule

Target = Literal["greedy", "sampled", "expected"]
"""Value of the next state: max Q(s', ·), Q of an ε-greedy action, or its mean."""


STEP_SIZE = number("a step size, in (0, 1]", lambda alpha: 0.0 < alpha <= 1.0)

DRAW = -1
"""Stands for a next action that is still to be drawn."""


@dataclass(frozen=True, kw_only=True)
class Tabular:
    """Base of the tabular learners: δ = r + γ·(1 − terminated)·target(s') − Q(s, a); Q(s, a) += α·weight·δ.

    A batch is learned row by row: each row uses the values that the previous rows left. A state and action drawn twice
    are updated twice, and the TD errors are those at each row's update. `truncated` does not stop the bootstrap. Under
    `NStep` the return and its own discount replace r and γ·(1 − terminated), without off-policy correction.

    Attributes:
        alpha: Step size α, in (0, 1].
        gamma: Discount γ.
        epsilon: Probability of a random action, a number or a schedule over training progress. With N episodes
            ``Exponential(0.25, 0.25 * 0.99**N)`` is .25 × .99 for each episode.
        online: Whether to learn from every new step as it comes.
        batch_size: B, replayed for each update; 0: nothing is replayed.
        capacity: C, steps the replay buffer keeps.
        learning_starts: Environment steps before the first replayed update; it may be below `batch_size`, see `DQN`.
        train_period: Environment steps between two turns of replayed updates.
        gradient_steps: Batches in a turn.
        initial_value: Mean of the first action values.
        initial_std: Standard deviation of the first action values, drawn from `Stream.INITIAL_WEIGHTS`.
    """

    target: ClassVar[Target]
    alpha: float = 0.5
    gamma: float = 0.99
    epsilon: float | Schedule = 0.1
    online: bool = True
    batch_size: int = 0
    capacity: int = 1_000
    learning_starts: int = 32
    train_period: int = 1
    gradient_steps: int = 1
    initial_value: float = 0.0
    initial_std: float = 0.0

    def __post_init__(self) -> None:
        counts = ("capacity", "learning_starts", "train_period", "gradient_steps")
        check(self, **dict.fromkeys(counts, whole()), batch_size=whole(0), online=flag)
        check(self, alpha=STEP_SIZE, gamma=FRACTION, epsilon=CHANCE, initial_value=FINITE, initial_std=NOT_NEGATIVE)
        if not self.online and not self.batch_size:
            rule = "True where `batch_size` is 0: else nothing is learned"
            raise ConfigError(f"`online` of {type(self).__name__} must be {rule}, but got False")

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> "TabularAgents":
        """Return new agents, replica r made only from seeds[r].

        Raises:
            ConfigError: The observations or the actions are not Discrete.
        """
        if not isinstance(observation_space, spaces.Discrete):
            raise ConfigError(
                f"tables need Discrete observations, but these are in {observation_space}; "
                "`replaylab.envs.Discretize` makes them of a Box"
            )
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(f"tables need Discrete actions, but these are in {action_space}")
        return TabularAgents(self, observation_space, action_space, seeds)

    @property
    def needs_next_action(self) -> bool:
        """Whether `TabularAgents.observe` needs the next action."""
        return self.target == "sampled"


@dataclass(frozen=True, kw_only=True)
class QLearning(Tabular):
    """Q-learning (Watkins 1989): target(s') = max Q(s', ·)."""

    target: ClassVar[Target] = "greedy"


@dataclass(frozen=True, kw_only=True)
class Sarsa(Tabular):
    """SARSA (Rummery & Niranjan 1994): target(s') = Q(s', a') with the next action a'.

    Online a' is what the behaviour really does next. Where it does nothing next, since the episode was truncated, and
    in all replayed rows a' is drawn from the ε-greedy policy of now, from its own stream: the action that was
    taken back then belongs to a policy that is gone.
    """

    target: ClassVar[Target] = "sampled"


@dataclass(frozen=True, kw_only=True)
class ExpectedSarsa(Tabular):
    """Expected SARSA (van Seijen et al. 2009): target(s') = (1 − ε)·max Q(s', ·) + ε·mean Q(s', ·), ε now."""

    target: ClassVar[Target] = "expected"


class TabularAgents(EpsilonGreedyAgents):
    """R independent tables of action values.

    Args:
        learner: The settings.
        observation_space: S states, counted from its start.
        action_space: A actions, counted from its start.
        seeds: One for each replica: `Stream.INITIAL_WEIGHTS`, `Stream.EXPLORATION`, and `Stream.NEXT_ACTION` for SARSA.

    Attributes:
        q: Action values, float64 (R, S, A).
        updates: Number of calls of `update`.
        first_state: The number of the first of the S states.
    """

    def __init__(
        self, learner: Tabular, observation_space: spaces.Discrete, action_space: spaces.Discrete, seeds: Sequence[int]
    ) -> None:
        super().__init__(learner.epsilon, action_space, seeds)
        shape = (int(observation_space.n), int(action_space.n))
        self.learner = learner
        self.q = np.full((len(seeds), *shape), learner.initial_value)
        if learner.initial_std > 0.0:
            noise = [generator(seed, Stream.INITIAL_WEIGHTS).standard_normal(shape) for seed in seeds]
            self.q += learner.initial_std * np.stack(noise)
        self.first_state = int(observation_space.start)
        self._replicas = np.arange(len(seeds))[:, None]
        streams = [sequence(seed, Stream.NEXT_ACTION).generate_state(4, np.uint64) for seed in seeds]
        self._streams: npt.NDArray[np.uint64] = np.stack(streams).astype(np.uint64)

    def q_values(self, obs: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Return Q(s, ·), float64 (R, N, A), for states (R, N)."""
        values: npt.NDArray[np.float64] = self.q[self._replicas, obs - self.first_state]
        return values

    def observe(self, step: Step) -> None:
        """Learn from one new step of each replica that stepped."""
        where = step.where
        following = integers(step.next_action, self.first_action)  # DRAW is negative
        next_action = np.where(step.terminated | step.truncated, DRAW, following)
        self._learn(
            obs=np.where(where, step.obs, self.first_state)[:, None],
            action=np.where(where, step.action, self.first_action)[:, None],
            reward=np.where(where, step.reward, 0.0)[:, None],
            discount=(self.learner.gamma * ~step.terminated)[:, None],
            next_obs=np.where(where, step.next_obs, self.first_state)[:, None],
            weight=where[:, None],
            next_action=np.where(where, next_action, 0)[:, None],
        )

    def update(self, batch: Batch) -> ValueUpdate:
        """Learn from a drawn batch with columns (R, B): obs, action, reward, next_obs, terminated, weight."""
        td_error, q = self._replay(batch, batch.weight)
        self.updates += 1
        return ValueUpdate(td_error, td_error, q, batch.weight)

    def probe(self, batch: Batch) -> Probe:
        """Return the TD errors of the current table, and the gradient of mean weight·δ²/2 by its S·A values."""
        still = copy.copy(self)
        still.q, still._streams = self.q.copy(), self._streams.copy()
        td_error, _ = still._replay(batch, np.zeros_like(batch.weight))
        gradient = np.zeros((len(self.q), self.q[0].size))
        cells = integers(batch.obs, self.first_state) * self.q.shape[-1] + self.index_of(batch.action)
        np.add.at(gradient, (self._replicas, cells), -batch.weight * td_error / td_error.shape[1])
        return Probe(td_error, gradient)

    def state(self) -> State:
        """Return a copy of the complete state."""
        epsilon = np.broadcast_to(np.float64(self.epsilon), len(self.q)).copy()
        return {
            "q": self.q.copy(),
            "epsilon": epsilon,
            "next_action_stream": self._streams.copy(),
            "updates": np.array(self.updates),
        } | self.exploration_state()

    def restore(self, state: State) -> None:
        """Continue, bit for bit, from what `state` of equal agents returned.

        Raises:
            ShapeError: The tables are not of these replicas, states and actions.
        """
        if state["q"].shape != self.q.shape:
            raise ShapeError(f"`q` must be {self.q.shape}, as these agents' tables are, but got {state['q'].shape}")
        self.q, self._streams = state["q"].copy(), state["next_action_stream"].copy()
        self.epsilon, self.updates = state["epsilon"].copy(), int(state["updates"])
        self.restore_exploration(state)

    def _replay(
        self, batch: Batch, weight: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        discount = batch["discount"] if "discount" in batch else self.learner.gamma * np.logical_not(batch.terminated)
        return self._learn(batch.obs, batch.action, batch.reward, discount, batch.next_obs, weight)

    def _learn(
        self,
        obs: npt.NDArray[Any],
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        discount: npt.NDArray[Any],
        next_obs: npt.NDArray[Any],
        weight: npt.NDArray[Any],
        next_action: npt.NDArray[np.int64] | None = None,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Update every table, row after row; return δ and Q(s, a) as each row saw them, float64 (R, B)."""
        target = self.learner.target
        epsilon = np.full(len(self.q), 0.0 if target == "greedy" else self.epsilon)
        td_error, q = np.empty(obs.shape), np.empty(obs.shape)
        update_tables(
            q=self.q,
            obs=integers(obs, self.first_state),
            action=integers(action, self.first_action),
            reward=_reals(reward),
            discount=_reals(discount),
            next_obs=integers(next_obs, self.first_state),
            step_size=self.learner.alpha * _reals(weight),
            epsilon=epsilon,
            next_action=next_action if target == "sampled" else None,
            streams=self._streams if target == "sampled" else None,
            td_error=td_error,
            q_before=q,
        )
        return td_error, q


def integers(values: npt.NDArray[Any], first: int = 0) -> npt.NDArray[np.int64]:
    """Return states or actions counted from 0, as int64, so that products do not overflow."""
    numbers = np.ascontiguousarray(values, dtype=np.int64)
    return numbers - first if first else numbers


def _reals(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64)
