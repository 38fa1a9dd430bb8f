"""Deep Q-learning with switches for flaws of published studies, to measure the effect of each.

Evaluations stay greedy, on their own environments, by the true rewards, and so do the recorded returns.

Shapes: R replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from replaylab.arguments import FINITE, check, flag, optional
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import feed_back, probed
from replaylab.learners.api.exploration import EpsilonGreedyAgents
from replaylab.learners.api.hooks import EnvStep, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents, ProbedAgents
from replaylab.learners.dqn.learner import DQN

NEVER = 2**62
"""Target period with which the updates never move the target network."""


@dataclass(frozen=True)
class DQNAsPublished(DQN):
    """Deep Q-learning with switches for flaws of published studies. With all of them off it equals `DQN`, bit for bit.

    Evaluations stay greedy, on separate environments, with the true rewards. Other flaws need no switch: unused
    importance weights are β = 0 of the sampler, a 64-step window as "no replay" is `SlidingWindow`, a small discount
    is ``gamma=0.8``.

    A study can also report flawed numbers of a sound run. One reported as "TD error of the batch" the errors that its
    rows had when they were stored. With `trace_every` these are ``trace/insertion_error_mean``, and the current ones
    ``trace/td_error_mean``, of any learner.

    The defaults are those of `DQN`. One published study had ``loss="squared"`` (as δ², which with Adam makes no
    difference), ``max_grad_norm=None`` and ``double=False``, and a flaw's effect may depend on these: with Huber's loss
    `target_each_episode` kept CartPole from being learned, with the squared loss it did not.

    Attributes:
        end_reward: Stored as the reward wherever an episode ends, also at goals and time limits; None: the true reward.
            An agent that gets −10 for a goal, and less for each step before, learns to avoid the goal.
        truncation_terminates: Whether truncation is stored as termination, without bootstrapping.
        insertion_priorities: Whether a step's first priority is that of its TD error on arrival, instead of the largest
            priority; batches write theirs back.
        stale_priorities: Whether a step keeps its first priority; batches write nothing back.
        target_each_episode: Whether the target network is copied at the end of each episode and at no other time.
            `target_period` and `tau` then have no effect, and the copies depend on how well the agent does.
        explores_first_action: Whether exploration always takes action 0.
    """

    end_reward: float | None = None
    truncation_terminates: bool = False
    insertion_priorities: bool = False
    stale_priorities: bool = False
    target_each_episode: bool = False
    explores_first_action: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, end_reward=optional(FINITE), truncation_terminates=flag)
        check(self, insertion_priorities=flag, stale_priorities=flag)
        check(self, target_each_episode=flag, explores_first_action=flag)

    def agents(self, observation_space: Space[Any], action_space: Space[Any], seeds: Sequence[int]) -> Agents:
        """Return new agents; see `DQN.agents`."""
        settings = replace(self, target_period=NEVER) if self.target_each_episode else self
        agents = DQN.agents(settings, observation_space, action_space, seeds)
        if self.explores_first_action:
            cast("EpsilonGreedyAgents", agents).explore_first(1)
        return agents

    def hooks(self) -> tuple[Hook, ...]:
        """Return what puts the flaws into training."""
        return (_Flaws(self),)


class _Flaws(Hook):
    """Applies the switches of the learner to stored steps, priorities and the target network."""

    def __init__(self, learner: DQNAsPublished) -> None:
        self._learner = learner

    def on_begin(self, run: TrainingRun) -> None:
        """Stop the feedback from batches, if priorities are to become stale."""
        learner = self._learner
        self._at_insertion = run.feedback is not None and (learner.insertion_priorities or learner.stale_priorities)
        if self._at_insertion and run.feedback != "td_error":
            switch = "stale_priorities" if learner.stale_priorities else "insertion_priorities"
            raise ConfigError(
                f"`{switch}` stores the TD error of each new step, but {run.sampler} wants "
                f"L_online − L_target; take `Prioritized`, or leave the switch off"
            )
        if learner.stale_priorities:
            run.feedback = None

    def before_store(self, run: TrainingRun, step: EnvStep) -> EnvStep:  # noqa: ARG002
        """Return a step as the flawed study stored it."""
        learner, reward, terminated, truncated = self._learner, step.reward, step.terminated, step.truncated
        if learner.end_reward is not None:
            kind = reward.dtype.type if reward.dtype.kind == "f" else np.float64
            reward = np.where(step.ended, kind(learner.end_reward), reward)
        if learner.truncation_terminates:
            terminated, truncated = step.ended, np.zeros_like(truncated)
        return replace(step, reward=reward, terminated=terminated, truncated=truncated)

    def on_step(self, run: TrainingRun, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Give a new step its priority, and copy the target network at an episode's end."""
        if self._at_insertion:
            error = probed(cast("ProbedAgents", run.agents), step.stored_batch(ids)).td_error
            feed_back(run.replay, ids[:, None], error)
        if self._learner.target_each_episode:
            cast("Any", run.agents).copy_target(step.ended)
