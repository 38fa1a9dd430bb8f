"""Deep Q-learning with flaws of published studies, each a switch: to see what each does to a study's conclusion.

Evaluations stay greedy, on environments of their own, by the true rewards, and so do the recorded returns.

Shapes: R replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from replaylab.arguments import FINITE, check, flag, optional
from replaylab.learners.api.protocols import Agents, ProbedAgents, Step, each
from replaylab.learners.dqn.settings import DQN
from replaylab.replay import Batch, ReplayBuffer

NEVER = 2**62
"""Updates between two moves of a target network that its updates leave alone."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DQNAsPublished(DQN):
    """Deep Q-learning with switches for flaws of published studies. With all of them off it is `DQN`, bit for bit.

    Other flaws are plain settings: importance weights that nobody uses are β = 0 of the sampler, "no replay" that is a
    window of 64 steps is `SlidingWindow`. The defaults are `DQN`'s, and not of any published study: one had
    ``loss="squared"``, ``max_grad_norm=None`` and ``double=False``, with which flaws did other things than with these.

    Attributes:
        end_reward: Stored in place of the reward wherever an episode ends, at goals and time limits too; None: nothing
            is. An agent that is paid −10 for a goal, and less for each step before, learns to stay away from it.
        truncation_terminates: Whether a time limit is stored as a termination, so that nothing is bootstrapped there.
        stale_priorities: Whether a step's priority is that of the TD error which the learner finds when the step
            comes, for ever; nothing is written back from batches.
        target_each_episode: Whether the target network is copied at the end of each episode, and at no other time:
            `target_period` and `tau` are without effect. How often it moves then depends on how well the agent does.
    """

    end_reward: float | None = None
    truncation_terminates: bool = False
    stale_priorities: bool = False
    target_each_episode: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, end_reward=optional(FINITE), truncation_terminates=flag)
        check(self, stale_priorities=flag, target_each_episode=flag)

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> Agents:
        """Return new agents; see `DQN.agents`."""
        settings = replace(self, target_period=NEVER) if self.target_each_episode else self
        return DQN.agents(settings, observation_space, action_space, seeds)

    @property
    def feeds_back(self) -> bool:
        """Whether TD errors of batches go back to the sampler."""
        return not self.stale_priorities

    def kept(
        self, reward: npt.NDArray[Any], terminated: Bools, truncated: Bools
    ) -> tuple[npt.NDArray[Any], Bools, Bools]:
        """Return reward, terminated and truncated of a step as they are stored; all (R,)."""
        ended = terminated | truncated
        if self.end_reward is not None:
            reward = np.where(ended, reward.dtype.type(self.end_reward), reward)
        if self.truncation_terminates:
            terminated, truncated = ended, np.zeros_like(truncated)
        return reward, terminated, truncated

    def after(self, step: Step, ids: npt.NDArray[np.int64], agents: Agents, buffer: ReplayBuffer) -> None:
        """Do what is done once a step is stored.

        Args:
            step: The step as it is stored, with its true next observation.
            ids: Its number in each replica, −1 where there is none, int64 (R,).
            agents: Of this learner.
            buffer: Where it is stored.
        """
        if self.stale_priorities and buffer.sampler.wants_feedback:
            buffer.update_priorities(ids[:, None], cast("ProbedAgents", agents).probe(_batch(step, ids)).td_error)
        if self.target_each_episode:
            cast("_WithTarget", agents).copy_target(step.terminated | step.truncated)


class _WithTarget(Protocol):
    """Agents that have a target network."""

    def copy_target(self, where: Bools) -> None: ...


def _batch(step: Step, ids: npt.NDArray[np.int64]) -> Batch:
    """Return a step of every replica as a batch of one row, (R, 1, ...)."""
    columns = {name: getattr(step, name) for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated")}
    columns |= {"id": ids, "weight": np.ones(len(ids), np.float32)}
    return Batch({name: each(lambda part: part[:, None], column) for name, column in columns.items()})
