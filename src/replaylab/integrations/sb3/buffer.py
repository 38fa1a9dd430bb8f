"""A buffer for Stable-Baselines3's algorithms: ``replay_buffer_class=ReplayLabBuffer``."""

import sys
import weakref
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer as LibraryBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from replaylab.episode_ends import terminated_and_truncated, truncated_by_time_limit
from replaylab.errors import ConfigError
from replaylab.integrations.by_place import ByPlace, shaped
from replaylab.integrations.sb3.goals import ComputeTerminated, Goals
from replaylab.integrations.sb3.layout import Layout, Obs, check_same, steps_and_gamma
from replaylab.integrations.sb3.pickles import Snapshots, blocks_of
from replaylab.integrations.watched_rewards import Draw
from replaylab.replay import Batch, Hindsight, NStep, Progress, ReplayBuffer, Sampler, Schedules, Seed, Storage, Uniform
from replaylab.trees import map_leaves, same_rows, take

Samples = ReplayBufferSamples | DictReplayBufferSamples

MAKES = ("_setup_model", "load_replay_buffer")
"""Methods in which the library creates a buffer, and loads one."""

EVERY = 16
"""Number of batches of which one counts in the means, besides the first after each of the logger's dumps: the means
cost more than a draw."""


class ReplayLabBuffer(ByPlace, LibraryBuffer):  # type: ignore[override] # whose attributes are properties here
    """A buffer for ``replay_buffer_class=`` of any off-policy algorithm: this library's samplers, transforms, storage.

    It supports Box, Discrete, MultiBinary and Dict observations, and several environments. Targets bootstrap after time
    limits. γ, n and the seed are those of the algorithm. n-step returns have their true discounts; with
    ``VecNormalize``, each reward is normalized before they are summed. They never cross an episode's end, nor the end
    of an episode that was abandoned because `learn` was called again. The algorithm passes the first six arguments;
    pass the others in ``replay_buffer_kwargs``. A sampler with feedback or weights needs an algorithm `WithPriorities`.

    Args:
        buffer_size: C, the capacity over all environments.
        observation_space: Space of one environment.
        action_space: Space of one environment.
        device: Device of the batches.
        n_envs: E.
        optimize_memory_usage: Find next observations in the row that follows instead of storing them. Those that are in
            no row are stored separately, so nothing is lost.
        handle_timeout_termination: Whether a time limit truncates an episode; False: it terminates the episode.
        sampler: Sampler of the batches.
        n_steps: n of n-step returns; None: the algorithm's.
        gamma: γ; None: the algorithm's.
        n_sampled_goal: k, the number of hindsight goals for each desired goal; None: 4 with a strategy, else no
            hindsight.
        goal_selection_strategy: "future", "final" or "episode", as for `HerReplayBuffer`; None: "future"
            with k, else no hindsight. See `replaylab.replay.Hindsight`: episodes need not be finished.
        compute_terminated: Rule for termination under another goal: "env", the environment's ``compute_terminated``;
            "stored", the termination when the step was played; or a function of (achieved goals, desired goals, info)
            that returns bools.
        frame_stack: k, if observations are stacks of k frames along their first axis (`VecFrameStack`, after
            `VecTransposeImage`); each frame is then stored once.
        padding: Frames before an episode's first frame: "zero", as with `VecFrameStack`, or "repeat".
        compressed: Whether observations are stored compressed, without loss.
        storage: Storage of the rows; see `replaylab.ReplayBuffer`.
        snapshots: A folder in which `save_replay_buffer` saves the rows. Pickles then hold only its name, saving again
            writes only changes, and only the latest pickle can be loaded. None: pickles hold the complete buffer.
        count_replays: Whether to count how often each step is drawn; see `replaylab.ReplayBuffer`.
        seed: Seed of the draws; None: the algorithm's.

    Attributes:
        replay: The `replaylab.ReplayBuffer` underneath.
        progress: Training progress in [0, 1] for the sampler's schedules, if the buffer serves no algorithm.

    Raises:
        ConfigError: An argument is out of its range, contradicts the algorithm, or needs what the algorithm does not
            provide.
        FieldError: A space cannot be stored.

    Example:
        >>> from gymnasium import spaces
        >>> from replaylab.replay import Prioritized
        >>> box = spaces.Box(-1, 1, (3,))
        >>> buffer = ReplayLabBuffer(100, box, box, sampler=Prioritized(beta=0.4), n_steps=3, gamma=0.9)
        >>> buffer.add(np.zeros(3), np.ones(3), np.zeros(3), np.zeros(1), np.zeros(1), [{}])
        >>> buffer.sample(2).next_observations.shape
        torch.Size([2, 3])
    """

    progress: float | None = None
    _draw: Draw | None = None  # the batch whose feedback is awaited

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        sampler: Sampler = Uniform(),  # noqa: B008 - frozen
        n_steps: int | None = None,
        gamma: float | None = None,
        n_sampled_goal: float | None = None,
        goal_selection_strategy: Any = None,
        compute_terminated: ComputeTerminated = "env",
        frame_stack: int | None = None,
        padding: Literal["zero", "repeat"] = "zero",
        compressed: bool = False,
        storage: Storage | None = None,
        snapshots: str | Path | None = None,
        count_replays: bool = False,
        seed: Seed = None,
    ) -> None:
        algorithm = algorithm_calling(*MAKES)
        spaces_of_one = (observation_space, action_space)
        self._declare(buffer_size, *spaces_of_one, n_envs, optimize_memory_usage, handle_timeout_termination)
        self.device = get_device(device)
        self.n_steps, self.gamma = steps_and_gamma(n_steps, gamma, algorithm)
        self._layout = Layout(observation_space, action_space, frame_stack, padding, compressed)
        self.obs_shape, self.action_dim = self._layout.obs_shape, self._layout.action_dim
        transforms: list[Any] = [] if self.n_steps == 1 else [NStep(self.n_steps, self.gamma or 0.0)]
        transforms += [] if self._layout.stack is None else [self._layout.stack]
        hindsight = n_sampled_goal is not None or goal_selection_strategy is not None
        self._goals = Goals(compute_terminated) if hindsight else None
        if self._goals is not None:
            ratio = 4.0 if n_sampled_goal is None else n_sampled_goal
            transforms.append(self._goals.hindsight(_strategy(goal_selection_strategy), ratio))
        self.replay = ReplayBuffer(
            self.buffer_size * self.n_envs,
            self._layout.fields,
            num_envs=self.n_envs,
            sampler=_checked(sampler),
            transforms=transforms,
            next_obs="derived" if self.optimize_memory_usage else "stored",
            storage=storage,
            count_replays=count_replays,
            seed=getattr(algorithm, "seed", None) if seed is None else seed,
        )
        self._schedules, self._snapshots = _schedules_of(self.replay), Snapshots(snapshots)
        self._by_episodes = bool(transforms) or self.replay.sampler.needs_episodes
        # Each environment's last next observation, and whether its episode continues.
        self._last_next_obs: tuple[Obs, npt.NDArray[np.bool_]] | None = None
        self._carrying = self._weightless = False
        self._figures = Figures()
        self._algorithm: weakref.ref[OffPolicyAlgorithm] | None = None
        self.attach(algorithm)

    def attach(self, algorithm: OffPolicyAlgorithm | None) -> None:
        """Use an algorithm's progress and logger and, for hindsight, its environment.

        Raises:
            ConfigError: The sampler needs an algorithm `WithPriorities`, and this one is not.
        """
        if algorithm is None:
            return
        name, jax = (
            type(algorithm).__name__,
            any(base.__module__.startswith("sbx.") for base in type(algorithm).__mro__),
        )
        self._weightless = jax or not getattr(algorithm, "takes_weights", False)
        if self.replay.sampler.wants_feedback and jax:
            raise ConfigError(
                f"{self.replay.sampler!r} wants TD errors, and weights in the loss, which {name} of sbx does not give: "
                "its update is compiled whole; use a sampler without feedback, such as Recency()"
            )
        if self.replay.sampler.wants_feedback and self._weightless:
            raise ConfigError(
                f"{self.replay.sampler!r} wants TD errors, and weights in the loss, which {name} does not give; use "
                f"Prioritized{name}, or class Prioritized{name}(WithPriorities, {name})"
            )
        self._algorithm = weakref.ref(algorithm)
        if self._goals is not None and algorithm.env is not None:
            self._goals.set_env(algorithm.env)

    def set_env(self, env: VecEnv) -> None:
        """Set the environment that computes rewards and terminations in hindsight. An algorithm sets its own."""
        if self._goals is not None:
            self._goals.set_env(env)

    def add(
        self,
        obs: Obs,
        next_obs: Obs,
        action: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        done: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one time step of every environment.

        Raises:
            ShapeError, DtypeError: A value does not fit the spaces.
        """
        leading = (self.n_envs,)
        obs, next_obs = self._layout.stored("obs", obs, leading), self._layout.stored("next_obs", next_obs, leading)
        ended = shaped("done", done, leading).astype(np.bool_, copy=False)
        terminated, truncated = ended, np.zeros(leading, np.bool_)
        cut_off = [truncated_by_time_limit(info) for info in infos] if self.handle_timeout_termination else []
        if True in cut_off:
            truncated[:] = cut_off
            terminated, truncated = terminated_and_truncated(ended, truncated)
        if self._by_episodes:
            self._end_abandoned_episodes(obs)
        self.replay.add(
            obs=obs,
            action=self._layout.action(action, leading),
            reward=shaped("reward", reward, leading).astype(np.float32, copy=False),
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
        )
        if self._by_episodes:
            self._last_next_obs = map_leaves(np.copy, next_obs), ~(ended | truncated)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Samples:  # type: ignore[override]
        """Draw a batch.

        Args:
            batch_size: B.
            env: Normalizes the drawn observations and rewards, which are stored without normalization.

        Returns:
            The library's named tuple of tensors (B, ...); `discounts` only with n-step returns.

        Raises:
            EmptyBufferError: Too few steps are stored.
            ConfigError: The rows have weights, which the algorithm does not take.
        """
        self.feed_back()
        if self._goals is not None:
            self._goals.normalizing = env if self.n_steps > 1 and env is not None and env.norm_reward else None
        algorithm = self.serves
        if algorithm is None and self.progress is None:  # a copy, or a buffer passed to another algorithm
            self.attach(algorithm := algorithm_calling("train"))
        progress = self._schedules.progress(self.progress) if algorithm is None else _progress_of(algorithm)
        batch = self.replay.sample(batch_size, progress=progress)
        if self._carrying:
            self._draw = Draw(batch, self.device)
        elif self._weightless and not (batch.weight == 1.0).all():
            raise ConfigError(
                f"{self.replay.sampler!r} gives weights, which the algorithm does not put into its loss; use one "
                "WithPriorities, or a sampler without weights"
            )
        self._figures.drawn(algorithm, self.replay, batch)
        return self._samples(batch, env)

    def carry(self, on: bool) -> None:
        """Set whether the batches drawn from now on pass weights to the loss and return TD errors."""
        self._carrying = on and type(self.replay.sampler) is not Uniform
        self._draw = None

    def feed_back(self) -> None:
        """Pass the TD errors of the last batch to the sampler.

        Raises:
            ConfigError: No TD errors were computed.
        """
        draw, self._draw = self._draw, None
        if draw is None:
            return
        errors = draw.errors()
        if errors is None:
            raise ConfigError(
                "the algorithm received a batch with weights, but its loss computes no difference from the batch's "
                "`rewards`; WithPriorities cannot serve it"
            )
        self._fed(draw.ids, errors)

    def read_in(self, source: Any) -> None:
        """Add the steps of one of the library's own buffers, in the order in which they were stored.

        Args:
            source: The buffer, or the path of its pickle. Pickles run code: read only pickles that you trust.

        Raises:
            ConfigError: The source is not such a buffer, or has other spaces or another number of environments.
        """
        self.replay.end_episode()  # the buffer's open episodes do not continue in the other's steps
        for steps in blocks_of(source, self):
            length = len(steps["reward"])
            obs, after = (self._layout.stored(name, steps[name], (length, self.n_envs)) for name in ("obs", "next_obs"))
            action = self._layout.action(steps["action"], (length, self.n_envs))
            self.replay.extend(**steps | {"obs": obs, "next_obs": after, "action": action})
            ended = steps["terminated"][-1] | steps["truncated"][-1]
            self._last_next_obs = take(after, -1), ~ended

    def reset(self) -> None:
        """Remove every stored step."""
        super().reset()
        self._last_next_obs = None

    @property
    def dones(self) -> npt.NDArray[np.float32]:  # type: ignore[override]
        """1 where a step ended its episode, by termination or by a time limit, else 0."""
        return np.asarray(self._by_place("terminated") | self._by_place("truncated"), np.float32)

    def _end_abandoned_episodes(self, obs: Obs) -> None:
        """End the episodes of environments that were reset without an end of their episode."""
        if self._last_next_obs is None:
            return
        before, continues = self._last_next_obs
        current = map_leaves(lambda leaf, stored: leaf.astype(stored.dtype, copy=False), obs, before)
        abandoned = continues & ~same_rows(current, before)
        if abandoned.any():
            self.replay.end_episode(abandoned)

    @property
    def serves(self) -> OffPolicyAlgorithm | None:
        """The algorithm whose progress and logger the buffer uses; None if there is none."""
        return None if self._algorithm is None else self._algorithm()

    def _fed(self, ids: npt.NDArray[np.int64], errors: npt.NDArray[Any]) -> None:
        """Pass |δ| of rows to the sampler, each (B,)."""
        num_stored = self.replay.update_priorities(ids, errors)
        self._figures.fed(self.serves, errors, len(ids) - num_stored)

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Samples:
        """Return a batch as the library's named tuple."""
        rewards = self._normalize_reward(batch.reward, env) if self.n_steps == 1 else self._returns(batch, env)
        column = (-1, 1)
        reward_tensor = self.to_torch(rewards.reshape(column), copy=False)
        obs, next_obs = (self._observations(values, env) for values in (batch.obs, batch.next_obs))
        kind = DictReplayBufferSamples if isinstance(obs, dict) else ReplayBufferSamples
        return kind(
            observations=obs,
            actions=self.to_torch(batch.action, copy=False),
            next_observations=next_obs,
            dones=self.to_torch(batch.terminated.reshape(column).astype(np.float32), copy=False),
            rewards=reward_tensor if self._draw is None else self._draw.watch(reward_tensor),
            discounts=None if self.n_steps == 1 else self.to_torch(batch.discount.reshape(column), copy=False),
        )

    def _observations(self, obs: Obs, env: VecNormalize | None) -> Any:
        shown = self._normalize_obs(self._layout.shown(obs), env)
        return map_leaves(partial(self.to_torch, copy=False), shown)

    def _returns(self, batch: Batch, env: VecNormalize | None) -> npt.NDArray[np.float32]:
        """Return the n-step returns, of rewards that were normalized one by one."""
        returns: npt.NDArray[np.float32] = batch.reward
        if env is None or not env.norm_reward:
            return returns
        if self.replay.storage is not None:
            raise ConfigError(
                "VecNormalize(norm_reward=True) normalizes every reward of an n-step return, whose rows are not known "
                "where others may add some in between; leave out `storage`, or normalize rewards in the environment"
            )
        original = (
            ~batch.relabelled if "relabelled" in batch else np.ones(len(returns), np.bool_)
        )  # recomputed rewards are normalized already
        steps = np.arange(self.n_steps)
        slots = (batch.id[original, None] + steps * self.n_envs) % self.replay.capacity
        rewards = env.normalize_reward(self.replay.columns["reward"][slots].astype(np.float64))
        powers = (self.gamma or 0.0) ** steps * (steps < batch.n_steps[original, None])
        returns[original] = (rewards * powers).sum(1)
        return returns

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_draw": None, "_algorithm": None, "replay": self._snapshots.packed(self.replay)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.replay = self._snapshots.unpacked(state["replay"])
        self._schedules = _schedules_of(self.replay)
        rewards: list[Any] = [part.compute_reward for part in self.replay.transforms if isinstance(part, Hindsight)]
        self._goals = rewards[0].__self__ if rewards else None  # a deep copy keeps the original's environment
        algorithm = algorithm_calling(*MAKES)
        if algorithm is not None:
            self._check_fits(algorithm)
        self.attach(algorithm)

    def _check_fits(self, algorithm: OffPolicyAlgorithm) -> None:
        """Raise `ConfigError` if the algorithm that loads this buffer has other environments or n-step returns."""
        into = getattr(algorithm, "replay_buffer", None)  # a script may have deleted it
        n_steps = into.n_steps if isinstance(into, ReplayLabBuffer) else self.n_steps
        gamma = into.gamma if isinstance(into, ReplayLabBuffer) else algorithm.gamma
        returns = {"n_steps": n_steps, "gamma": gamma} if max(self.n_steps, n_steps) > 1 else {}
        check_same("loaded", self, {"n_envs": algorithm.n_envs} | returns)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReplayLabBuffer":
        """Return a copy in memory, without a folder of snapshots."""
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        replaced = {"_draw": None, "_algorithm": None, "_snapshots": Snapshots(None)}
        copy.__setstate__(deepcopy(self.__dict__ | replaced, memo))
        return copy


def _schedules_of(replay: ReplayBuffer) -> Schedules:
    sampler = replay.sampler
    return Schedules(type(sampler).__name__, sampler.schedules, "set `progress` of the buffer")


def _progress_of(algorithm: OffPolicyAlgorithm) -> float:
    share = min(max(1.0 - algorithm._current_progress_remaining, 0.0), 1.0)
    return Progress(share, algorithm.num_timesteps // algorithm.n_envs)


def _checked(sampler: Sampler) -> Sampler:
    """Return the sampler after checking that the library's algorithms can use it."""
    if isinstance(sampler, Sampler) and sampler.rows(2) != 2:
        raise ConfigError(
            f"{sampler!r} gives another number of rows than asked for, which the library's algorithms do not expect; "
            'use another one, such as Combined("replace")'
        )
    if isinstance(sampler, Sampler) and sampler.feedback_kind != "td_error":
        raise ConfigError(
            f"{sampler!r} wants the loss under the target network, which the library's algorithms do not compute; use "
            "another one, such as Prioritized()"
        )
    return sampler


def _strategy(value: Any) -> Any:
    """Return the name of a strategy; the library's own are members of an enumeration."""
    return "future" if value is None else value.name.lower() if isinstance(value, GoalSelectionStrategy) else value


def algorithm_calling(*methods: str) -> OffPolicyAlgorithm | None:
    """Return the algorithm that is executing one of these methods; None if there is none.

    The library passes neither γ, n, progress nor environment to a buffer. The buffer takes them from the algorithm that
    calls it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods and isinstance(caller := frame.f_locals.get("self"), OffPolicyAlgorithm):
            return caller
        frame = frame.f_back
    return None


class Figures:
    """Figures of draws and feedback, logged under ``replay/`` by the algorithm's logger, if there is an algorithm."""

    def __init__(self) -> None:
        self._batches = self._replayed = self._stale = 0
        self._due = False

    def drawn(self, algorithm: Any, replay: ReplayBuffer, batch: Batch) -> None:
        """Record a batch."""
        self._batches += 1
        self._replayed += len(batch.id)
        logger = getattr(algorithm, "_logger", None)
        if logger is None:
            return
        logger.record("replay/size", len(replay))
        logger.record("replay/transitions_replayed", self._replayed)
        self._due = self._batches % EVERY == 0 or "replay/age_mean" not in logger.name_to_value
        if self._due:
            logger.record_mean("replay/age_mean", float(int(replay.next_id) - 1 - batch.id.mean()))
            if getattr(algorithm, "takes_weights", False):
                logger.record_mean("replay/weight_mean", float(batch.weight.mean()))

    def fed(self, algorithm: Any, errors: npt.NDArray[np.floating[Any]], stale: int) -> None:
        """Record the errors fed back for the batch, and the number of its rows that were no longer stored."""
        self._stale += stale
        if self._due:  # always for the first batch after a dump
            algorithm.logger.record("replay/stale_updates", self._stale)
            algorithm.logger.record_mean("replay/td_error_mean", float(errors.mean()))
