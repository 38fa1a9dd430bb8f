"""Everything that moves while R replicas are trained: environments, agents, buffer, streams, clock."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from replaylab.envs import make_vector_env
from replaylab.errors import ConfigError, ReplayError
from replaylab.learners.api.clock import Clock
from replaylab.learners.api.observations import are_pixels
from replaylab.learners.api.protocols import Agents, EnvSampler, Learner, Step, StoringLearner, WatchingSampler, pick
from replaylab.learners.api.random_streams import Stream, numbers
from replaylab.learners.training import env_state as continuing
from replaylab.learners.training.env_hindsight import EnvHindsight, transforms_for
from replaylab.replay import (
    Field,
    FrameStack,
    NStep,
    ReplayBuffer,
    Sampler,
    Transform,
)
from replaylab.replay import (
    Sequence as Sequences,
)
from replaylab.replay.data.fields import LEAST_COMPRESSED
from replaylab.replay.samplers.sampler import FeedbackKind


@dataclass(frozen=True)
class Job:
    """What is trained; every argument is explained at `train`."""

    env_id: str
    learner: Learner
    sampler: Sampler | EnvSampler
    total_steps: int | None = None
    total_episodes: int | None = None
    transforms: Sequence[Transform | EnvHindsight] = ()
    env_options: Mapping[str, Any] = field(default_factory=dict)
    autoreset_mode: str | AutoresetMode | None = None
    measure_every: int | None = None

    def __post_init__(self) -> None:
        if self.transforms and not isinstance(self.sampler, Sampler) and not self.sampler.takes_transforms:
            raise ConfigError("the oracle scores steps as they are stored; leave the transforms out")
        for one in self.transforms:
            if isinstance(one, Sequences):
                raise ConfigError("the training loop's learners learn from single steps; leave Sequence out")
            gamma = getattr(self.learner, "gamma", None)
            if isinstance(one, NStep) and gamma not in (None, one.gamma):
                raise ConfigError(f"`gamma` of NStep must be the learner's, {gamma}, but got {one.gamma}")

        if not self.feeds_back and isinstance(self.sampler, Sampler) and self.sampler.feedback_kind != "td_error":
            raise ConfigError(
                f"`stale_priorities` stores the TD error of each new step, but {self.sampler} wants "
                f"L_online − L_target; take `Prioritized`, or leave the switch off"
            )

    @property
    def feeds_back(self) -> bool:
        """Whether the learner lets what is found of batches go back to the sampler."""
        return not isinstance(self.learner, StoringLearner) or self.learner.feeds_back

    @cached_property
    def feedback(self) -> FeedbackKind | None:
        """What goes back from batches to the sampler; None: nothing."""
        wanted = isinstance(self.sampler, Sampler) and self.sampler.wants_feedback and self.feeds_back
        return self.sampler.feedback_kind if wanted and isinstance(self.sampler, Sampler) else None

    def __str__(self) -> str:
        return ", ".join(f"{one.name}={getattr(self, one.name)!s}" for one in fields(self))


def states_of(job: Job) -> int:
    """Return how many states there are to visit.

    Raises:
        ConfigError: The observations are not Discrete.
    """
    env = _environments(job, 1)
    space = env.single_observation_space
    env.close()
    if not isinstance(space, spaces.Discrete):
        raise ConfigError(f"`visits` are counted of Discrete observations, but those of {job.env_id} are in {space}")
    return int(space.n)


class Run:
    """R replicas under way.

    Args:
        job: What is trained.
        seeds: One for each replica.
        buffer: What they have stored; None: nothing yet.

    Attributes:
        obs: What the environments show now, (R, ...).
        waiting: The last step, for a learner that has to know what is done next; its `where` says for whom.
    """

    def __init__(self, job: Job, seeds: Sequence[int], buffer: ReplayBuffer | None = None) -> None:
        self.job, self.seeds = job, list(seeds)
        self.clock = Clock.of(job.total_steps, job.total_episodes, len(self.seeds))
        self.env = _environments(job, len(self.seeds))
        continuing.prepare(self.env)
        self.agents = _agents(job, self.env, self.seeds)
        _check_feedback(job, self.agents)
        self.buffer = _buffer(job, self.env, self.seeds, self.agents) if buffer is None else buffer
        if isinstance(self.buffer.sampler, WatchingSampler):
            self.buffer.sampler.watch(self.agents, self.buffer)
        self.waiting: Step | None = None
        starts = [numbers(seed, Stream.ENV_RESET, 1)[0] for seed in self.seeds]
        self.obs, _ = self.env.reset(seed=starts)  # type: ignore[arg-type]  # vector environments take a list
        self.first_state = int(getattr(self.env.single_observation_space, "start", 0))
        self.disabled = self.env.metadata["autoreset_mode"] is AutoresetMode.DISABLED

    def part(self, rows: npt.NDArray[np.bool_]) -> "Run":
        """Return a run of some of the replicas, which go on as they would have here."""
        seeds = [seed for seed, here in zip(self.seeds, rows, strict=True) if here]
        smaller = Run(self.job, seeds, self.buffer.part(rows))
        smaller.restore(pick(self.state(), rows))
        return smaller

    def agents_of(self, rows: npt.NDArray[np.bool_]) -> Agents:
        """Return agents of some of the replicas, as they are now."""
        if rows.all():
            return self.agents
        seeds = [seed for seed, here in zip(self.seeds, rows, strict=True) if here]
        agents = _agents(self.job, self.env, seeds)
        agents.restore(pick(self.agents.state(), rows))
        return agents

    def state(self) -> dict[str, Any]:
        """Return everything but the buffer as nested arrays, (R, ...) or numbers equal for all."""
        state: dict[str, Any] = {"agents": self.agents.state(), "clock": self.clock.state()}
        state |= {"env": continuing.state_of(self.env), "obs": {"": self.obs}}
        return state if self.waiting is None else state | {"waiting": dict(vars(self.waiting))}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.agents.restore(state["agents"])
        self.clock.restore(state["clock"])
        continuing.restore(self.env, state["env"])
        self.obs = state["obs"][""]
        continuing.compare(self.env, self.obs)
        self.waiting = Step(**state["waiting"]) if "waiting" in state else None

    def observe(self, step: Step) -> None:
        """Let the agents learn from a step: now, or, where they have to know what is done next, when that is known."""
        if not self.job.learner.needs_next_action:
            self.agents.observe(step)
            return
        ended = step.terminated | step.truncated
        if ended.any():
            self.agents.observe(replace(step, where=step.where & ended))
        self.waiting = replace(step, where=step.where & ~ended)

    def observe_waiting(self, action: npt.NDArray[Any]) -> None:
        """Let the agents learn from the step that waited for this action."""
        if self.waiting is not None:
            self.agents.observe(replace(self.waiting, next_action=action))
            self.waiting = None


def true_next_obs(next_obs: Any, final_obs: Any, ended: npt.NDArray[np.bool_]) -> Any:
    """Return the next observations (R, ...), true ones where a SAME_STEP environment put the next episode's first."""
    if final_obs is None or not ended.any():
        return next_obs
    rows = np.flatnonzero(ended)
    return _replaced(next_obs, rows, [final_obs[row] for row in rows])


def _replaced(obs: Any, rows: npt.NDArray[np.intp], values: list[Any]) -> Any:
    if isinstance(obs, Mapping):
        return {name: _replaced(part, rows, [value[name] for value in values]) for name, part in obs.items()}
    obs = obs.copy()
    obs[rows] = values
    return obs


def _environments(job: Job, count: int) -> VectorEnv[Any, Any, Any]:
    try:
        return make_vector_env(job.env_id, count, autoreset_mode=job.autoreset_mode, **job.env_options)
    except TypeError as error:
        raise ConfigError(f"`env_options` do not fit {job.env_id}: {error}") from error
    except ReplayError:
        raise
    except (Exception, SystemExit) as error:  # a constructor may raise anything
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{job.env_id} cannot be made with env_options={dict(job.env_options)}: {told}") from error


def _agents(job: Job, env: VectorEnv[Any, Any, Any], seeds: Sequence[int]) -> Agents:
    try:
        return job.learner.agents(env.single_observation_space, env.single_action_space, seeds)
    except ConfigError as error:
        raise ConfigError(f"{type(job.learner).__name__} cannot learn {job.env_id}: {error}") from error


def _check_feedback(job: Job, agents: Agents) -> None:
    if not job.learner.batch_size or job.feedback in (None, "td_error"):
        return
    if job.feedback != "reducible_loss":
        kinds = " or ".join(f'"{kind}"' for kind in get_args(FeedbackKind))
        raise ConfigError(f"`feedback_kind` of {job.sampler} must be {kinds}, but got {job.feedback!r}")
    if not (hasattr(agents, "target_q_values") and hasattr(agents, "loss")):
        raise ConfigError(
            f"{job.sampler} wants L_online − L_target, the difference of two networks' losses, but agents of "
            f"{type(job.learner).__name__} have no target network (`target_q_values` and `loss`); take "
            f"`Prioritized`, or DQN"
        )


def _sampler(job: Job, agents: Agents) -> Sampler:
    if isinstance(job.sampler, Sampler):
        return job.sampler
    return job.sampler.of(job.env_id, job.env_options, agents)


def _buffer(job: Job, env: VectorEnv[Any, Any, Any], seeds: Sequence[int], agents: Agents) -> ReplayBuffer:
    transforms = transforms_for(env, job.transforms)
    stacked = any(isinstance(one, FrameStack) and one.stacked_input for one in transforms)
    return ReplayBuffer.for_env(
        env,
        job.learner.capacity,
        replicas=len(seeds),
        sampler=_sampler(job, agents),
        transforms=transforms,
        next_obs="derived" if stacked else "stored",
        extra_fields=_packed_pixels(env.single_observation_space),
        count_replays=job.measure_every is not None,
        seed=list(seeds),
    )


def _packed_pixels(space: Space[Any]) -> dict[str, Field]:
    """Return the fields of images, which are kept compressed, without loss; none where there are none, or tiny ones."""
    shape = space.shape or ()
    if not are_pixels(space) or math.prod(shape[1:]) < LEAST_COMPRESSED:
        return {}
    field = Field(shape, np.uint8, compressed=True)
    return {"obs": field, "next_obs": field}
