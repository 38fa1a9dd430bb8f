"""An actor: environments, a copy of the policy, and a writer to the shards. It steps when it is asked to."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab.distributed.replay import RemoteWriter
from replaylab.envs.batched import autoreset_of
from replaylab.learners.api.answers import actions_of, q_values_of
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.learners.api.finite import check_obs, finite_step
from replaylab.learners.api.hooks import EnvStep
from replaylab.learners.api.protocols import Learner, PublishedAgents, State, ValueAgents
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.factories import environments
from replaylab.trees import map_leaves, stack

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ActorDeclaration:
    """What an actor is made from.

    Attributes:
        number: Its place among the actors.
        life: How many of this slot there were before.
        configuration: What is trained.
        learner: What its copy of the agents is made by.
        seed: Of the training; number and life make the actor's own streams of it.
        epsilons: Chance of a random action in each of its E environments.
    """

    number: int
    life: int
    configuration: TrainingConfig
    learner: Learner
    seed: int
    epsilons: tuple[float, ...]


class Published(NamedTuple):
    """Weights on their way to actors.

    Attributes:
        version: The updates that they had had.
        weights: They, or what stands for them until an actor has them.
    """

    version: int
    weights: Any


class Report(NamedTuple):
    """What an actor tells of one call.

    Attributes:
        steps: Stored, and acknowledged by their shards.
        returns: Of episodes that ended, (K,).
        lengths: Likewise.
    """

    steps: int
    returns: list[float]
    lengths: list[float]


class Actor:
    """Steps E environments, each call with the weights that come with it.

    A new actor's environments begin new episodes, which shards join to no step of another writer's.

    Args:
        declared: What it is made from.
        writer: Of its environments.

    Raises:
        ConfigError: The environments cannot be made.
    """

    def __init__(self, declared: ActorDeclaration, writer: RemoteWriter) -> None:
        self._writer, self._version = writer, -1
        configuration, seed, actor_key = declared.configuration, declared.seed, (declared.number, declared.life)
        self._env_id, count = configuration.env_id, len(declared.epsilons)
        self._env = env = environments(configuration, count)
        self._mode = autoreset_of(env)
        actions = env.single_action_space
        self._seeds = numbers(seed, Stream.EXPLORATION, count, *actor_key)
        agents = _on_cpu(declared.learner).agents(env.single_observation_space, actions, self._seeds[:1])
        self._agents = cast("PublishedAgents", agents)  # the learner made sure
        self._epsilons = np.array(declared.epsilons)
        self._explore = EpsilonGreedy(self._seeds) if isinstance(agents, ValueAgents) else None
        self._first = actions.start if isinstance(actions, spaces.Discrete) else 0
        self._resets = np.zeros(count, np.bool_)
        self._returns, self._lengths = np.zeros(count), np.zeros(count)
        self._obs, _ = env.reset(seed=numbers(seed, Stream.ENV_RESET, count, *actor_key))  # type: ignore[arg-type]  # a list
        check_obs(self._obs, self._env_id, self._seeds, "an actor's first reset")

    def step(self, version: int, count: int, progress: float, weights: State) -> Report:
        """Take so many time steps in all environments, store them, and wait until they are acknowledged.

        Args:
            version: Of the weights.
            count: T.
            progress: How far training is, for schedules of exploration, in [0, 1].
            weights: To act by.

        Raises:
            NonFiniteError: The environment gave a reward or an observation that is NaN or infinite.
            StorageError: A shard was lost, and none has come in its place.
            ShapeError: The agents gave actions of another shape.
        """
        if version != self._version:
            self._agents.take_weights(weights)
            self._version = version
        self._agents.set_progress(progress)
        ends: list[tuple[float, float]] = []
        pairs = [self._step(ends) for _ in range(count)]
        steps, where = zip(*pairs, strict=True)
        columns = stack([step.columns() for step in steps])  # (T, E, ...) each
        stored = np.stack(where)
        self._writer.extend(where=stored, **columns)
        self._writer.flush()
        returns, lengths = [episode_return for episode_return, _ in ends], [length for _, length in ends]
        return Report(int(stored.sum()), returns, lengths)

    def _step(self, ends: list[tuple[float, float]]) -> tuple[EnvStep, Bools]:
        """Take one time step, and return it with where it is one, bool (E,), and no environment resetting itself."""
        action = self._act(self._obs)
        number = int(self._lengths.max())
        step = finite_step(self._env, self._obs, action, self._env_id, self._seeds, number)
        ended, where = step.ended, ~self._resets
        self._resets = ended if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(ended)
        self._obs = step.next_obs
        if self._mode is AutoresetMode.DISABLED and ended.any():
            self._obs, _ = self._env.reset(options={"reset_mask": ended})
            check_obs(self._obs, self._env_id, self._seeds, "an actor's reset")
        self._returns += where * step.reward
        self._lengths += where
        ends += zip(self._returns[ended].tolist(), self._lengths[ended].tolist(), strict=True)
        self._returns[ended] = self._lengths[ended] = 0.0
        return step, where

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        """Return an action for each environment, (E, ...), as in training."""
        rows = map_leaves(lambda part: part[None], obs)
        if self._explore is None:
            actions: npt.NDArray[Any] = actions_of(self._agents, rows, 1, len(self._seeds), explore=True)[0]
            return actions
        q = q_values_of(self._agents, rows, (1, len(self._seeds)))[0]
        chosen = self._explore(q, self._epsilons) + self._first
        return np.asarray(chosen.astype(self._env.single_action_space.dtype, copy=False))


def _on_cpu(learner: Learner) -> Learner:
    """Return a learner whose agents compute on the CPU, by the same library as where it learns."""
    if hasattr(learner, "on_cpu"):
        return cast("Learner", learner.on_cpu)
    if getattr(learner, "device", "cpu") == "cpu":
        return learner
    return cast("Learner", replace(cast("Any", learner), device="cpu:0"))
