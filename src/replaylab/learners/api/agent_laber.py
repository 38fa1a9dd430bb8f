"""LaBER with the TD errors of the agents in training as scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from replaylab.arguments import check, whole
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import probed
from replaylab.learners.api.hooks import Bools, Hook, TrainingRun
from replaylab.learners.api.protocols import Agents, ProbedAgents
from replaylab.replay import Batch, LaBER


class _TdErrors:
    """|δ| of every row of a pool by the current agents, (R, m·B); 0 in place of NaN."""

    def __init__(self, agents: ProbedAgents) -> None:
        self.agents = agents

    def __call__(self, pool: Batch) -> Any:
        error = np.abs(probed(self.agents, pool).td_error)
        return np.where(np.isfinite(error), error, 0.0)


class _AgentsHook(Hook):
    """Keeps the sampler scoring by the agents in training, also after some replicas have ended."""

    def on_begin(self, run: TrainingRun) -> None:
        """Score by these agents."""
        cast("_TdErrors", cast("LaBER", run.sampler).score).agents = cast("ProbedAgents", run.agents)

    def keep(self, run: TrainingRun, rows: Bools) -> None:  # noqa: ARG002
        """Score by the remaining agents."""
        self.on_begin(run)


@dataclass(frozen=True)
class AgentLaBER:
    """`LaBER` with |δ| as score: each pool row's TD error under the agents' parameters at the draw.

    Source: Lahire, Geist & Rachelson 2022, of whose scores |δ| leaves out what the last layer adds.

    Attributes:
        m: Size of the pool, in multiples of B. Default: 4.
    """

    m: int = 4

    wants_feedback: ClassVar[bool] = False
    takes_transforms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, m=whole())

    def hooks(self) -> tuple[Hook, ...]:
        """Return the hook that gives the agents to the sampler."""
        return (_AgentsHook(),)

    def of(self, env_id: str, env_options: Mapping[str, Any], agents: Agents) -> LaBER:  # noqa: ARG002
        """Return the sampler.

        Raises:
            ConfigError: The agents cannot evaluate a batch as an update would (`Agents.probe`).
        """
        if not isinstance(agents, ProbedAgents):
            raise ConfigError(
                f"LaBER scores rows by the TD errors that `probe` of the agents returns, but {type(agents).__name__} "
                "has no such method; take Prioritized, or a learner such as DQN"
            )
        return LaBER(_TdErrors(agents), self.m)
