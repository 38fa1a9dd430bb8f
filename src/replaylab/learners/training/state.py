"""The state of a run of R replicas: environments, agents, replay, random streams, clock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from replaylab.envs import env_state
from replaylab.envs.batched import autoreset_of
from replaylab.learners.api.finite import check_obs, finite_step
from replaylab.learners.api.hooks import EnvStep, Feedback
from replaylab.learners.api.protocols import Agents, Step, pick
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.training import factories
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.hooks import HookedRun, HookList
from replaylab.replay import DivisibleReplay, InspectableReplay, Replay, Sampler, require

SEVERAL_IN_EPISODES = "a budget of episodes for several seeds at once"


class Run(HookedRun):
    """R replicas in training.

    Args:
        configuration: The configuration of the run.
        seeds: One for each replica.
        hooks: Its hooks; None: those of the configuration.
        replay: The replay; None: a new, empty one.
        sampler: The sampler of `replay`, if that is given.

    Attributes:
        learner: Settings of the learner.
        obs: Current observations, (R, ...).
        waiting: The last step, for a learner that needs the next action; `where` marks its replicas.
        feedback: Kind of feedback from batches to the sampler; None: no feedback.
    """

    def __init__(
        self,
        configuration: TrainingConfig,
        seeds: Sequence[int],
        hooks: HookList | None = None,
        replay: Replay | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self.learner = configuration.driven_learner
        super().__init__(configuration, seeds, hooks or HookList(configuration, seeds))
        self.env = factories.environments(configuration, len(self.seeds))
        env_state.prepare(self.env)
        self.agents = factories.agents_for(configuration, self.learner, self.env, self.seeds)
        self.sampler = factories.sampler_for(configuration, self.agents) if sampler is None else sampler
        self.feedback: Feedback | None = self.sampler.feedback_kind if self.sampler.wants_feedback else None
        if replay is None:
            replay = factories.replay_for(configuration, self.learner, self.env, self.seeds, self.sampler)
        self.replay = replay
        self.waiting: Step | None = None
        starts = [numbers(seed, Stream.ENV_RESET, 1)[0] for seed in self.seeds]
        self.obs, _ = self.env.reset(seed=starts)  # type: ignore[arg-type]  # vector environments take a list
        self._disabled = autoreset_of(self.env) is AutoresetMode.DISABLED

    def begin(self) -> None:
        """Call `on_begin` of the hooks, and raise for what cannot be trained.

        Raises:
            ConfigError: Something does not fit.
            NonFiniteError: An observation is NaN or infinite.
        """
        self.hooks.emit("on_begin", self)
        factories.check_feedback(self.learner, self.agents, self.sampler, self.feedback)
        if self.configuration.measure_every is not None:
            require(self.replay, InspectableReplay, "`measure_every`")
        if self.configuration.total_episodes is not None and len(self.seeds) > 1:
            env_state.check(self.env, self.env_id, SEVERAL_IN_EPISODES)
            require(self.replay, DivisibleReplay, SEVERAL_IN_EPISODES)
        steps = self.clock.steps
        check_obs(self.obs, self.env_id, self.seeds, f"step {steps:,}" if steps else "its first reset")

    def step(self, action: npt.NDArray[Any]) -> EnvStep:
        """Take an action in every environment, (R, ...).

        Raises:
            NonFiniteError: A reward or an observation is NaN or infinite.
        """
        return finite_step(self.env, self.obs, action, self.env_id, self.seeds, self.clock.steps)

    def go_on(self, step: EnvStep) -> None:
        """Set the current observations to a step's results; after an episode's end to the next first observation."""
        self.obs = step.next_obs
        if self._disabled and step.ended.any():
            self.obs, _ = self.env.reset(options={"reset_mask": step.ended})
            check_obs(self.obs, self.env_id, self.seeds, f"the reset after step {self.clock.steps:,}")

    def observe(self, step: EnvStep, ids: npt.NDArray[np.int64]) -> None:
        """Let the agents learn from a step, now, or once the next action is known if they need it."""
        where = ids >= 0
        new_step = Step(**step.columns(), next_action=step.action, where=where)
        if not self.learner.needs_next_action:
            self.agents.observe(new_step)
            return
        if step.ended.any():
            self.agents.observe(replace(new_step, where=where & step.ended))
        self.waiting = replace(new_step, where=where & ~step.ended)

    def observe_waiting(self, action: npt.NDArray[Any]) -> None:
        """Let the agents learn from the step that waited for this action."""
        if self.waiting is not None:
            self.agents.observe(replace(self.waiting, next_action=action))
            self.waiting = None

    def part(self, rows: npt.NDArray[np.bool_]) -> "Run":
        """Return a run of some of the replicas, bool (R,), which continue unchanged."""
        assert isinstance(self.replay, DivisibleReplay)  # or it could not have begun
        smaller = Run(self.configuration, self._seeds_of(rows), self.hooks, self.replay.part(rows), self.sampler)
        smaller.feedback = self.feedback
        smaller.restore(pick(self.state(), rows))
        self.hooks.keep(smaller, rows)
        return smaller

    def agents_of(self, rows: npt.NDArray[np.bool_]) -> Agents:
        """Return the current agents of some of the replicas, bool (R,)."""
        if rows.all():
            return self.agents
        agents = factories.agents_for(self.configuration, self.learner, self.env, self._seeds_of(rows))
        agents.restore(pick(self.agents.state(), rows))
        return agents

    def state(self) -> dict[str, Any]:
        """Return everything but the replay and the hooks as nested arrays, (R, ...) or numbers equal for all."""
        state: dict[str, Any] = {"agents": self.agents.state(), "clock": self.clock.state()}
        state |= {"env": env_state.state_of(self.env), "obs": {"": self.obs}}
        return state if self.waiting is None else state | {"waiting": dict(vars(self.waiting))}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        env_state.restore(self.env, state["env"])
        self.obs = state["obs"][""]
        env_state.compare(self.env, self.obs)
        self.waiting = Step(**state["waiting"]) if "waiting" in state else None

    def _seeds_of(self, rows: npt.NDArray[np.bool_]) -> list[int]:
        return [seed for seed, selected in zip(self.seeds, rows, strict=True) if selected]
