"""Interfaces of what the training loop drives: learners (settings) and their agents (R replicas).

Shapes: R replicas, N observations of each, B drawn steps, A actions. An observation is an array, or a nested
mapping of arrays (`Dict` spaces), with the leading axes of each of its arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from replaylab.replay import Batch, Sampler
from replaylab.trees import map_leaves

if TYPE_CHECKING:
    from gymnasium import Space

Obs = Any
"""An array, or a nested mapping of arrays."""

Loss = Literal["huber", "squared"]
"""The loss ℓ of a TD error."""

State = dict[str, npt.NDArray[Any]]
"""Flat names → plain arrays. Every array has R as its first axis, or no axis, for a number that all replicas share.
Selecting rows of a state therefore gives the state of these replicas only."""


def pick(state: Mapping[str, Any], rows: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the state, nested or not, of some replicas: `rows`, int or bool (R,), of every array with axis R."""
    picked: dict[str, Any] = map_leaves(lambda part: part[rows] if np.ndim(part) else part, state)
    return picked


@dataclass(frozen=True)
class Step:
    """One new environment step of every replica.

    Attributes:
        obs: Observations, (R, ...).
        action: Actions in the action space's dtype and shape, (R, ...).
        reward: float (R,).
        next_obs: Next observations, (R, ...); at an episode's end its true last observation.
        terminated: bool (R,).
        truncated: bool (R,).
        next_action: Next action of the behaviour policy, in next_obs, (R, ...); meaningless after an episode's end.
        where: Replicas that stepped, bool (R,); other rows have no meaning.
    """

    obs: Obs
    action: npt.NDArray[Any]
    reward: npt.NDArray[Any]
    next_obs: Obs
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_action: npt.NDArray[Any]
    where: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Update:
    """Results of an update, computed before it changed the parameters.

    Attributes:
        td_error: δ of every drawn row, float (R, B): the feedback to the sampler.
    """

    td_error: npt.NDArray[np.floating[Any]]

    def metrics(self) -> Mapping[str, npt.ArrayLike]:
        """Return further metrics of the update, each a number or (R,), by name.

        It is called only for the updates that are logged.
        """
        return {}


@dataclass(frozen=True)
class ValueUpdate(Update):
    """An update of action values.

    Attributes:
        td_error: δ = y − Q(s, a), float (R, B).
        slope: ℓ'(δ), float (R, B).
        q: Q(s, a), float (R, B).
        weight: Importance weights, float32 (R, B).
    """

    slope: npt.NDArray[np.floating[Any]]
    q: npt.NDArray[np.floating[Any]]
    weight: npt.NDArray[np.float32]

    @property
    def loss(self) -> npt.NDArray[np.floating[Any]]:
        """Mean over the batch of weight·ℓ(δ), float (R,); for both losses ℓ(δ) = ℓ'(δ)·(δ − ℓ'(δ)/2)."""
        loss: npt.NDArray[np.floating[Any]] = (self.weight * self.slope * (self.td_error - self.slope / 2)).mean(1)
        return loss

    def metrics(self) -> Mapping[str, npt.ArrayLike]:
        """Return the loss, and the mean, least and largest Q(s, a) of the batch."""
        q = self.q
        return {"train/loss": self.loss, "train/q_mean": q.mean(1), "train/q_min": q.min(1), "train/q_max": q.max(1)}


def row_loss(kind: Loss, td_error: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return ℓ(δ): δ²/2 (squared), or for |δ| > 1 |δ| − ½ (Huber)."""
    slope = np.clip(td_error, -1.0, 1.0) if kind == "huber" else td_error
    return np.asarray(slope * (td_error - slope / 2))


@dataclass(frozen=True)
class Probe:
    """Results that an update from a batch would have now; P parameters of a replica.

    Attributes:
        td_error: δ = y − Q(s, a), all rows under the same parameters, float (R, B).
        gradient: Mean over the batch of weight·∂ℓ(δ)/∂θ, without a bound on its norm, float (R, P).
        q: Q(s, a) in δ, float (R, B); None: that of `ValueAgents.q_values`.
    """

    td_error: npt.NDArray[np.floating[Any]]
    gradient: npt.NDArray[np.floating[Any]]
    q: npt.NDArray[np.floating[Any]] | None = None


@runtime_checkable
class Policy(Protocol):
    """A policy: the interface that evaluation, playing and video need."""

    def act(self, obs: Obs, explore: bool) -> npt.NDArray[Any]:
        """Return actions (R, N, ...), of the action space's own dtype and shape, for observations (R, N, ...).

        Args:
            obs: Observations of each replica's N environments.
            explore: Whether to act as in training, by the replicas' exploration streams, which then move on; N is 1.
                Else the policy acts as well as it can, draws nothing and changes nothing.
        """


class Agents(Policy, Protocol):
    """R agents; replica r depends only on its own seed and steps.

    A class that derives from this one need not define the methods that it does not use: `set_progress`,
    `exploration_metrics` and `observe` then do nothing.
    """

    updates: int
    """Number of calls of `update`."""

    def set_progress(self, progress: float | npt.NDArray[np.float64]) -> None:
        """Set the training progress in [0, 1], a number or (R,), before each turn, for schedules such as ε's."""

    def exploration_metrics(self) -> Mapping[str, npt.ArrayLike]:
        """Return the current exploration settings by their metrics' names, each a number or (R,)."""
        return {}

    def observe(self, step: Step) -> None:
        """Learn from one new step of each replica: the online update. Called only if the learner is `online`."""

    def update(self, batch: Batch) -> Update:
        """Learn from a drawn batch, its columns (R, B, ...), all replicas in one call."""

    def state(self) -> State:
        """Return a copy of the complete state."""

    def restore(self, state: State) -> None:
        """Continue, bit for bit, from what `state` of equal agents returned."""


@runtime_checkable
class Probed(Protocol):
    """Evaluates a batch without learning from it, for measures of TD errors and gradients."""

    def probe(self, batch: Batch) -> Probe:
        """Return what an update from a batch (R, B, ...) would compute; changes nothing, including random streams."""


@runtime_checkable
class ProbedAgents(Agents, Probed, Protocol):
    """Agents that can evaluate a batch without learning from it, as measures need (`measure_every`)."""


@runtime_checkable
class PublishedAgents(Agents, Protocol):
    """Agents whose policy actors in other processes can follow; `act` there has N = E, also with exploration."""

    def weights(self) -> State:
        """Return a copy of what the policy is computed from."""

    def take_weights(self, weights: State) -> None:
        """Follow the policy of equal agents, by what their `weights` returned; nothing else changes."""


@runtime_checkable
class ValueAgents(Agents, Protocol):
    """Agents that act by the values of Discrete actions."""

    def q_values(self, obs: Obs) -> npt.NDArray[Any]:
        """Return Q(s, ·), float (R, N, A), for observations (R, N, ...)."""


class TargetAgents(ValueAgents, Protocol):
    """Agents with a target network, which samplers such as `ReLo` need."""

    loss: Loss
    """ℓ."""

    def index_of(self, action: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        """Return the indices of actions, from 0 to A − 1."""

    def target_q_values(self, obs: Obs) -> npt.NDArray[Any]:
        """Return Q⁻(s, ·), the target network's values, float (R, N, A), for observations (R, N, ...)."""


def target_values(agents: TargetAgents, batch: Batch) -> npt.NDArray[Any]:
    """Return Q⁻(s, a) of a batch's rows, float (R, B): before an update, which may move the target network."""
    chosen = agents.index_of(batch.action)[..., None]
    return np.take_along_axis(agents.target_q_values(batch.obs), chosen, axis=2)[..., 0]


def reducible_loss(
    agents: TargetAgents, update: ValueUpdate, target_q: npt.NDArray[Any]
) -> npt.NDArray[np.floating[Any]]:
    """Return ℓ(y − Q(s, a)) − ℓ(y − Q⁻(s, a)) of an update's rows, float (R, B).

    Args:
        agents: The agents that updated.
        update: Their update, so that y − Q⁻(s, a) = δ + Q(s, a) − Q⁻(s, a).
        target_q: Q⁻(s, a) before the update, by `target_values`.
    """
    td_error = update.td_error.astype(np.float64)  # small differences of losses that need not be
    under_target = td_error + update.q - target_q
    return row_loss(agents.loss, td_error) - row_loss(agents.loss, under_target)


@runtime_checkable
class Learner(Protocol):
    """Settings of a learner: a frozen dataclass.

    It may have two more attributes: `metrics`, the `Metric` of each name that its agents record in addition to the
    library's, and `hooks()`, which returns its hooks (see `HookSource`).
    """

    @property
    def capacity(self) -> int:
        """C, steps the replay buffer keeps."""

    @property
    def batch_size(self) -> int:
        """B, drawn for each update; 0: nothing is replayed."""

    @property
    def learning_starts(self) -> int:
        """Number of environment steps before the first update."""

    @property
    def train_period(self) -> int:
        """Environment steps between two turns of learning."""

    @property
    def gradient_steps(self) -> int:
        """Updates in a turn of learning, each from its own batch."""

    @property
    def online(self) -> bool:
        """Whether the agents learn from every new step by `Agents.observe`."""

    @property
    def needs_next_action(self) -> bool:
        """Whether `Agents.observe` needs the next action, and therefore receives each step one step later."""

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> Agents:
        """Return new agents, replica r made only from seeds[r].

        Raises:
            ConfigError: A space cannot be handled; the message names it and how to fix it.
        """


@runtime_checkable
class EnvSampler(Protocol):
    """A sampler to be made once the environment and the agents are known, such as an oracle."""

    takes_transforms: bool
    """Whether it uses rows as a batch returns them; if not, it scores steps as they are stored."""

    def of(self, env_id: str, env_options: Mapping[str, Any], agents: Agents) -> Sampler:
        """Return the sampler.

        Raises:
            ConfigError: The sampler does not support this environment or these agents.
        """
