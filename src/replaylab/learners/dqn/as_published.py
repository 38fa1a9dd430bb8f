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
from replaylab.errors import ConfigError
from replaylab.learners.api.feedback import give_back
from replaylab.learners.api.hooks import Bools, EnvStep, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents, ProbedAgents, each
from replaylab.learners.dqn.settings import DQN
from replaylab.replay import Batch

NEVER = 2**62
"""Updates between two moves of a target network that its updates leave alone."""


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
            comes, forever; nothing is written back from batches.
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

    def hooks(self) -> tuple[Hook, ...]:
        """Return what puts the flaws into training."""
        return (_Flaws(self),)


class _Flaws(Hook):
    """Changes what is stored, and what is done once it is, as the switches of a learner say."""

    def __init__(self, learner: DQNAsPublished) -> None:
        self._learner = learner

    def on_begin(self, run: TrainingRun) -> None:
        """Stop the feedback from batches, if priorities are to become stale."""
        self._stale = self._learner.stale_priorities and run.feedback is not None
        if not self._learner.stale_priorities:
            return
        if run.feedback not in (None, "td_error"):
            raise ConfigError(
                f"`stale_priorities` stores the TD error of each new step, but {run.sampler} wants "
                f"L_online − L_target; take `Prioritized`, or leave the switch off"
            )
        run.feedback = None

    def before_store(self, run: TrainingRun, step: EnvStep) -> EnvStep:  # noqa: ARG002
        """Return a step as the flawed study stored it."""
        learner, reward, terminated, truncated = self._learner, step.reward, step.terminated, step.truncated
        if learner.end_reward is not None:
            kind = reward.dtype.type if reward.dtype.kind == "f" else np.float64
            reward = np.where(step.ended, kind(learner.end_reward), reward)
        if learner.truncation_terminates:
            terminated, truncated = step.ended, np.zeros_like(truncated)
        self._stored = replace(step, reward=reward, terminated=terminated, truncated=truncated)
        return self._stored

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Give a new step its priority forever, and copy the target network at an episode's end."""
        if self._stale:
            error = cast("ProbedAgents", run.agents).probe(_batch(self._stored, ids)).td_error
            give_back(run.replay, ids[:, None], error)
        if self._learner.target_each_episode:
            cast("_WithTarget", run.agents).copy_target(step.ended)


class _WithTarget(Protocol):
    """Agents that have a target network."""

    def copy_target(self, where: Bools) -> None: ...


def _batch(step: EnvStep, ids: npt.NDArray[np.int64]) -> Batch:
    """Return a step of every replica as a batch of one row, (R, 1, ...)."""
    columns = {name: getattr(step, name) for name in ("obs", "action", "reward", "terminated", "truncated")}
    columns |= {"next_obs": step.true_next_obs(), "id": ids, "weight": np.ones(len(ids), np.float32)}
    return Batch({name: each(lambda part: part[:, None], column) for name, column in columns.items()})
