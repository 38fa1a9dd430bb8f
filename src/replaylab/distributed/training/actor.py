"""An actor: a loop that steps environments, stores the steps, and follows the learner's newest policy."""

from dataclasses import replace
from time import monotonic, sleep
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from replaylab.distributed.replay import RemoteWriter
from replaylab.distributed.training.hub import Report
from replaylab.distributed.training.options import Actors
from replaylab.envs.batched import autoreset_of
from replaylab.learners import EnvStep, Learner, PublishedAgents, Stream, TrainingConfig, ValueAgents
from replaylab.learners.api.answers import actions_of, q_values_of
from replaylab.learners.api.exploration import EpsilonGreedy
from replaylab.learners.api.finite import check_obs, finite_step
from replaylab.learners.api.random_streams import numbers
from replaylab.learners.training.factories import environments
from replaylab.trees import map_leaves, stack

SECONDS = 0.1  # longest time of an unroll, about: slow environments take fewer steps with the same weights
CALLS = 1000  # calls of the hub a second, all actors together, if many actors have such environments


class Actor:
    """Steps E environments, beginning with new episodes, which its writer joins to no earlier steps.

    Args:
        number: Its slot among the N actors.
        life: Rises with every restart; number and life select the actor's own random streams.
        options: Options of all actors.
        configuration: The settings of training.
        learner: Creates the copy of the agents.
        seed: Seed of the training.
        writer: Writer of its environments.
        hub: Client of the `Hub`.
    """

    def __init__(
        self,
        number: int,
        life: int,
        options: Actors,
        configuration: TrainingConfig,
        learner: Learner,
        seed: int,
        writer: RemoteWriter,
        hub: Any,
    ) -> None:
        self._place, self._options, self._writer, self._hub = (number, life), options, writer, hub
        self._env_id = configuration.env_id
        self._env = env = environments(configuration, options.envs)
        self._mode = autoreset_of(env)
        actions = env.single_action_space
        self._seeds = numbers(seed, Stream.EXPLORATION, options.envs, *self._place)
        agents = on_cpu(learner).agents(env.single_observation_space, actions, self._seeds[:1])
        self._agents = cast("PublishedAgents", agents)  # the learner made sure
        self._epsilons = options.epsilons()[number]
        self._explore = EpsilonGreedy(self._seeds) if isinstance(agents, ValueAgents) else None
        self._first = actions.start if isinstance(actions, spaces.Discrete) else 0
        self._resets = np.zeros(options.envs, np.bool_)
        self._returns, self._lengths = np.zeros(options.envs), np.zeros(options.envs)
        starts: Any = numbers(seed, Stream.ENV_RESET, options.envs, *self._place)
        self._obs, _ = env.reset(seed=starts)
        check_obs(self._obs, self._env_id, self._seeds, "an actor's first reset")
        self._report, self._version, self._wanted = Report(), -1, options.unroll

    def run(self) -> None:
        """Act until a newer life has the slot."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Report, and take what the hub grants; return False if a newer life has the slot."""
        grant = self._hub.call("exchange", *self._place, self._report, self._version, self._wanted).result()
        if grant is None:
            return False
        self._report, self._version = Report(), grant.version
        if grant.weights is not None:
            self._agents.take_weights(grant.weights)
        if not grant.length:
            sleep(grant.pause)
            return True
        self._agents.set_progress(grant.progress)
        began = monotonic()
        self._report = self._unroll(grant.length)
        fitting = int(max(SECONDS, self._options.count / CALLS) * grant.length / max(monotonic() - began, 1e-9))
        self._wanted = min(max(fitting, 1), self._options.unroll)
        return True

    def _unroll(self, length: int) -> Report:
        """Take time steps in all environments, store them, and wait until their shards have acknowledged them."""
        ends = list[tuple[float, float]]()
        steps, where = zip(*[self._step(ends) for _ in range(length)], strict=True)
        columns, stored = stack([step.columns() for step in steps]), np.stack(where)  # (T, E, ...) each
        if hasattr(self._agents, "initial_td_errors"):  # else new steps get the largest priority of their shard
            columns["td_error"] = self._agents.initial_td_errors(columns)  # (T, E)
        lost = self._writer.lost_steps
        self._writer.extend(where=stored, **columns)
        self._writer.flush()
        lost = self._writer.lost_steps - lost
        return Report(int(stored.sum()) - lost, lost, *map(tuple, zip(*ends, strict=True)))

    def _step(self, ends: list[tuple[float, float]]) -> tuple[EnvStep, npt.NDArray[np.bool_]]:
        """Take one time step; return it, and which environments took it and did not only reset, bool (E,)."""
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
        """Return an action for each environment, (E, ...), with exploration."""
        rows = map_leaves(lambda part: part[None], obs)
        if self._explore is None:
            actions: npt.NDArray[Any] = actions_of(self._agents, rows, 1, len(self._seeds), explore=True)[0]
            return actions
        q = q_values_of(self._agents, rows, (1, len(self._seeds)))[0]
        chosen = self._explore(q, self._epsilons) + self._first
        return np.asarray(chosen.astype(self._env.single_action_space.dtype, copy=False))


def on_cpu(learner: Learner) -> Learner:
    """Return a learner whose agents compute on the CPU, with the same library as where it learns."""
    if hasattr(learner, "on_cpu"):
        return cast("Learner", learner.on_cpu)
    if getattr(learner, "device", "cpu") == "cpu":
        return learner
    return cast("Learner", replace(cast("Any", learner), device="cpu:0"))
