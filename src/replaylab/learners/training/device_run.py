"""A run whose learner steps E environments, with steps, draws and updates on a device.

It has the networks, schedules, target updates, metrics, evaluations and checkpoints of the other loop. `clock` counts
the steps of all environments. Metrics are read from the device only when they are logged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from replaylab.arguments import shown
from replaylab.errors import ConfigError
from replaylab.learners.api.answers import actions_of
from replaylab.learners.api.hooks import Feedback
from replaylab.learners.dqn.on_device import DeviceUpdates, RunReplay
from replaylab.learners.dqn.settings import DQNSettings
from replaylab.learners.training.configuration import TrainingConfig
from replaylab.learners.training.device_envs import EnvSteps
from replaylab.learners.training.factories import agents_for
from replaylab.learners.training.hooks import HookedRun, HookList
from replaylab.replay import Replay, Sampler, Transform

LOOP = 'with replay="device"'
"""The loop, as messages call it."""

LACKS = ("before_store", "on_step", "on_draw", "on_update")
"""Events for which steps or batches would have to come from the device."""


def device_learner(configuration: TrainingConfig, seeds: Sequence[int]) -> DQNSettings:
    """Return the learner of a run on a device.

    Raises:
        ConfigError: Something needs the other loop.
    """
    sampler = configuration.sampler
    if len(seeds) != 1:
        raise ConfigError(
            f"{LOOP} `seeds` must be a single one, but got {len(seeds)}; train the others separately (in a study: "
            "chunk_size = 1)"
        )
    if configuration.total_steps is None:
        raise ConfigError(f"{LOOP} the budget must be in steps, but got total_episodes={configuration.total_episodes}")
    if not isinstance(sampler, Sampler) or (sampler.wants_feedback and sampler.feedback_kind != "td_error"):
        raise ConfigError(
            f"{LOOP} `sampler` must draw by itself and by TD errors, but got {shown(sampler)}; take Uniform() or "
            "Prioritized()"
        )
    configuration.refuse_settings_of_the_host(LOOP)
    return cast("DQNSettings", configuration.driven_learner)


class DeviceRun(HookedRun):
    """A run of one seed, as a `TrainingRun` for hooks.

    Args:
        configuration: Configuration of the run.
        seeds: The seed.
        hooks: Hooks of the run; None: those of the configuration.

    Attributes:
        envs: The environments.
        updates: Does the updates.

    Raises:
        ConfigError: Something does not fit such training.
    """

    def __init__(self, configuration: TrainingConfig, seeds: Sequence[int], hooks: HookList | None = None) -> None:
        self.learner = learner = device_learner(configuration, seeds)
        super().__init__(configuration, seeds, hooks or HookList(configuration, seeds, loop=LOOP, lacks=LACKS))
        self.recorder.numbers = self._numbers
        self.envs = EnvSteps(configuration, learner.envs, seeds[0])
        self.env = self.envs.env
        self.agents = agents_for(configuration, configuration.driven_learner, self.env, seeds)
        self.sampler = cast("Sampler", configuration.sampler)
        self.feedback: Feedback | None = self.sampler.feedback_kind if self.sampler.wants_feedback else None
        modules: Any = self.agents  # PyTorch's, as `DQN.agents` documents
        transforms = cast("Sequence[Transform]", configuration.transforms)
        self._steps = RunReplay(self.env, learner.capacity, seeds[0], self.sampler, transforms, modules.device)
        self.replay = cast("Replay", self._steps)
        space, feeds_back = self.env.single_observation_space, self.feedback is not None
        self.updates = DeviceUpdates(learner, modules, self._steps, space, feeds_back)

    def begin(self) -> None:
        """Let the hooks begin, and refuse what cannot be trained.

        Raises:
            ConfigError: Something does not fit.
            NonFiniteError: An observation is NaN or infinite.
        """
        self.hooks.emit("on_begin", self)
        steps = self.clock.steps
        self.envs.check(f"step {steps:,}" if steps else "its first reset")
        if not steps:
            self._steps.check_first(self.envs.obs)

    def turn(self) -> None:
        """Take one step in every environment, and do the updates that are due."""
        learner, clock, hooks, before = self.learner, self.clock, self.hooks, self.clock.steps
        hooks.emit("before_turn", self)
        clock.step(learner.envs)
        self.agents.set_progress(clock.progress)
        self._steps.set_progress(cast("float", clock.progress))
        action = actions_of(self.agents, self.envs.obs[None], 1, learner.envs, explore=True)[0]
        step, returns, lengths = self.envs.step(action, clock.steps)
        self._steps.store(step)
        self.recorder.newest += learner.envs
        for episode in range(len(returns)):
            ended = slice(episode, episode + 1)
            self.recorder.on_episodes(clock, returns[ended], lengths[ended], np.ones(1, np.bool_))
        started = max(before, learner.learning_starts - 1)
        periods = clock.steps // learner.train_period - started // learner.train_period
        for _ in range(periods * learner.gradient_steps):
            self.updates()
            self.recorder.count_update(learner.batch_size)
        if periods > 0:
            hooks.emit("after_learning", self)
        self._evaluate(before)
        hooks.emit("after_turn", self)

    def _evaluate(self, before: int) -> None:
        """Evaluate if a period, or the budget, ended with this turn; the steps count as those of that moment."""
        every, now = self.configuration.eval_every, self.clock.steps
        due = now if every is None or now >= self.clock.total else now // every * every
        if due > before:
            with self.clock.at(due):
                self.hooks.evaluations.evaluate(self)

    def _numbers(self, run: Any) -> Mapping[str, npt.ArrayLike]:
        self.recorder.latest = self.updates.newest()
        return self.recorder.of_learning(run)

    def state(self) -> dict[str, Any]:
        """Return everything but the replay and the hooks as nested arrays."""
        return {"agents": self.agents.state(), "clock": self.clock.state(), "envs": self.envs.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        self.envs.restore(state["envs"])
