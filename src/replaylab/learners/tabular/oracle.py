"""The oracle of Schaul et al. 2016: it replays the steps that bring a table closest to the exact values.

Shapes: R replicas, N stored steps, S states, A actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from replaylab.envs import TransitionTable
from replaylab.errors import ConfigError
from replaylab.learners.api.hooks import Bools, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents
from replaylab.learners.tabular.dynamic_programming import optimal_values
from replaylab.learners.tabular.temporal_difference import TabularAgents, integers
from replaylab.replay import ReplayBuffer, TopScores, View

Floats = npt.NDArray[np.float64]


def gain(agents: TabularAgents, replica: int, exact: Floats, steps: Mapping[str, npt.NDArray[Any]]) -> Floats:
    """Return how much an update with each single step would lower the squared error of a replica's table.

    (Q(s, a) − Q*(s, a))² − (Q(s, a) + α·δ − Q*(s, a))², with the δ of the learner. Source: Schaul et al. 2016,
    section 3.1.

    Args:
        agents: Tables whose updates draw nothing.
        replica: Index of the replica.
        exact: Q*, (S, A).
        steps: obs, action, reward, next_obs, terminated, each (N,).

    Returns:
        float64 (N,), in squared values.
    """
    learner, q = agents.learner, agents.q[replica]
    epsilon = 0.0 if learner.target == "greedy" else np.broadcast_to(agents.epsilon, len(agents.q))[replica]
    value = (1.0 - epsilon) * q.max(1) + epsilon * q.mean(1)
    obs, next_obs = (integers(steps[name], agents.first_state) for name in ("obs", "next_obs"))
    where = obs * q.shape[1] + agents.index_of(steps["action"])
    discount = learner.gamma * np.logical_not(steps["terminated"])
    before, wanted = q.ravel()[where], exact.ravel()[where]
    target = steps["reward"] + discount * value[next_obs]
    after = before + learner.alpha * (target - before)
    lower: Floats = (before - wanted) ** 2 - (after - wanted) ** 2
    return lower


class TrueErrorOracle(TopScores):
    """The B steps whose single updates would now lower the squared error to Q* most.

    Sampling probability: P(i) = 1/B for those B (of equal ones the older), else 0. Source: the "oracle" of Schaul et
    al. 2016.

    Args:
        exact: Q*, float64 (S, A).
    """

    def __init__(self, exact: Floats) -> None:
        self.exact = exact

    def watch(self, agents: TabularAgents, replay: ReplayBuffer) -> None:
        """Score the steps of this replay for these agents, one for each replica, as they are at each draw."""
        self._agents, self._replay = agents, replay

    def scores(self, view: View) -> Floats:
        """Return the `gain` of every stored step."""
        steps = {name: column[view.replica, : len(view)] for name, column in self._replay.columns.items()}
        by_slot = gain(self._agents, view.replica, self.exact, steps)
        return np.roll(by_slot, -int(view.ids[0] % self._replay.capacity))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(Q* of {self.exact.shape[0]} × {self.exact.shape[1]})"


@dataclass(frozen=True)
class EnvOracle:
    """`TrueErrorOracle` with the exact values of the training environment."""

    takes_transforms: ClassVar[bool] = False

    def hooks(self) -> tuple[Hook, ...]:
        """Return the hook that passes the agents and their replay to the sampler."""
        return (_OracleHook(),)

    def of(self, env_id: str, env_options: Mapping[str, Any], agents: Agents) -> TrueErrorOracle:
        """Return the sampler; call its `watch` before it draws.

        Raises:
            ConfigError: The agents have no tables, or draw when they update, or the environment has no transition
                table of their size.
        """
        if not isinstance(agents, TabularAgents) or agents.learner.needs_next_action:
            raise ConfigError(
                "the oracle must know what an update does to a table of values; use QLearning or ExpectedSarsa"
            )
        try:
            table = TransitionTable.of(env_id, **env_options)
        except (gym.error.Error, TypeError) as error:
            raise ConfigError(f"the oracle needs the transition table of {env_id}, which has none: {error}") from error
        if (table.num_states, table.num_actions) != agents.q.shape[1:]:
            raise ConfigError(
                f"the oracle needs a transition table of the {agents.q.shape[1]} states and {agents.q.shape[2]} "
                f"actions that are learned, but that of {env_id} has {table.num_states} and {table.num_actions}"
            )
        return TrueErrorOracle(optimal_values(table, agents.learner.gamma))


class _OracleHook(Hook):
    """Passes a run's agents to its oracle."""

    def on_begin(self, run: TrainingRun) -> None:
        """Pass the agents to the oracle."""
        if not isinstance(run.replay, ReplayBuffer):
            raise ConfigError(f"the oracle scores what a ReplayBuffer has stored, but got {type(run.replay).__name__}")
        cast("TrueErrorOracle", run.sampler).watch(cast("TabularAgents", run.agents), run.replay)

    def keep(self, run: TrainingRun, rows: Bools) -> None:  # noqa: ARG002
        """Pass the remaining agents to the oracle."""
        self.on_begin(run)
