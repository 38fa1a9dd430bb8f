"""A replay as Stable-Baselines3's algorithms take it: ``replay_buffer_class=ReplayLabBuffer``."""

import weakref
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from replaylab.arguments import checked, flag, whole
from replaylab.errors import ConfigError
from replaylab.integrations.sb3.algorithm import MAKES, algorithm_calling
from replaylab.integrations.sb3.feedback import Draw
from replaylab.integrations.sb3.figures import Figures
from replaylab.integrations.sb3.goals import ComputeTerminated, Goals
from replaylab.integrations.sb3.layout import Layout, Obs, same, steps_and_gamma
from replaylab.integrations.sb3.pickles import blocks_of
from replaylab.integrations.sb3.places import Places
from replaylab.integrations.sb3.saving import Snapshots
from replaylab.replay import Batch, Hindsight, NStep, ReplayBuffer, Sampler, Seed, Storage, Uniform

Samples = ReplayBufferSamples | DictReplayBufferSamples


class ReplayLabBuffer(Places):
    """A buffer for ``replay_buffer_class=`` of any off-policy algorithm: this library's samplers, transforms, storage.

    Box, Discrete, MultiBinary and Dict observations; several environments; time limits do not end the bootstrap. γ, n
    and the seed are those of the algorithm. n-step returns have their true discounts, normalize each reward before they
    are summed (``VecNormalize``), and never look over an episode's end, also not over that of an episode that was left
    because `learn` began anew. The first six arguments are the algorithm's; the others go into
    ``replay_buffer_kwargs``. A sampler that wants feedback, or weights, needs an algorithm `WithPriorities`.

    Args:
        buffer_size: C, over all environments.
        observation_space: Of one environment.
        action_space: Of one environment.
        device: Where batches go.
        n_envs: E.
        optimize_memory_usage: Do not store next observations but find them in the row that follows, and keep those that
            are in none; nothing is lost.
        handle_timeout_termination: Whether an episode that a time limit ended is truncated; if not, it has terminated.
        sampler: What to draw.
        n_steps: n of n-step returns, None: the algorithm's.
        gamma: γ, None: the algorithm's.
        n_sampled_goal: k goals in hindsight for every one that was pursued; None: 4 with a strategy, else no hindsight.
        goal_selection_strategy: "future", "final" or "episode" as for `HerReplayBuffer`, or "random"; None: "future"
            with k, else no hindsight. See `replaylab.replay.Hindsight`: episodes need not be finished.
        compute_terminated: What ends an episode under another goal: "env", its ``compute_terminated``; "stored", what
            ended it when it was played; or a function of (achieved goals, desired goals, info) that returns bools.
        frame_stack: k, where observations are stacks of k frames along their first axis (`VecFrameStack`, after
            `VecTransposeImage`): frames are stored once.
        padding: What is before an episode's first frame: "zero", as with `VecFrameStack`, or "repeat".
        compressed: Whether observations are stored compressed, without loss.
        storage: Where rows are; see `replaylab.ReplayBuffer`.
        snapshots: A folder for what `save_replay_buffer` saves: pickles then hold its name only, saving again writes
            only what changed, and only the latest can be loaded. None: pickles hold the whole buffer.
        count_replays: Whether to count how often each step is drawn; see `replaylab.ReplayBuffer`.
        seed: Of the draws; None: the algorithm's.

    Attributes:
        replay: The `replaylab.ReplayBuffer` underneath.
        progress: Training progress in [0, 1] for scheduled numbers, where no algorithm is there to ask.

    Raises:
        ConfigError: An argument is out of its range, contradicts the algorithm, or asks for what it cannot do.
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
        self.n_envs = checked("n_envs", n_envs, whole())
        self.buffer_size = max(checked("buffer_size", buffer_size, whole()) // self.n_envs, 1)
        self.observation_space, self.action_space = observation_space, action_space
        self.device = get_device(device)
        self.handle_timeout_termination = checked("handle_timeout_termination", handle_timeout_termination, flag)
        self.optimize_memory_usage = checked("optimize_memory_usage", optimize_memory_usage, flag)
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
        self._snapshots = Snapshots(snapshots)
        self._by_episodes = bool(transforms) or self.replay.sampler.needs_episodes
        # Where each environment was left, and whether its episode goes on.
        self._left: tuple[Obs, npt.NDArray[np.bool_]] | None = None
        self._carrying = self._weightless = False
        self._figures = Figures()
        self._algorithm: weakref.ref[OffPolicyAlgorithm] | None = None
        self.attach(algorithm)

    def attach(self, algorithm: OffPolicyAlgorithm | None) -> None:
        """Serve an algorithm: by its progress, its logger, and its environment, if that has goals.

        Raises:
            ConfigError: The sampler needs one `WithPriorities`, which it is not.
        """
        if algorithm is None:
            return
        name, jax = type(algorithm).__name__, any(one.__module__.startswith("sbx.") for one in type(algorithm).__mro__)
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
        """Take the environment whose goals hindsight asks for; an algorithm's own is known."""
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
        obs, next_obs = self._layout.stored(obs, leading), self._layout.stored(next_obs, leading)
        ended = np.asarray(done, np.bool_).reshape(leading)
        timeout = np.zeros(leading, np.bool_)
        if self.handle_timeout_termination:
            timeout[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        if self._by_episodes:
            self._end_what_was_left(obs)
        self.replay.add(
            obs=obs,
            action=self._layout.action(action, leading),
            reward=np.asarray(reward, np.float32).reshape(leading),
            next_obs=next_obs,
            terminated=ended & ~timeout,
            truncated=timeout,
        )
        if self._by_episodes:
            self._left = _copied(next_obs), ~(ended | timeout)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Samples:  # type: ignore[override]
        """Draw a batch.

        Args:
            batch_size: B.
            env: What normalizes observations and rewards; they are stored as they were.

        Returns:
            The library's named tuple, of tensors (B, ...); `discounts` with n-step returns only.

        Raises:
            EmptyBufferError: Too little is stored.
            ConfigError: The rows have weights, which the algorithm does not take.
        """
        self.feed_back()
        if self._goals is not None:
            self._goals.normalizing = env if self.n_steps > 1 and env is not None and env.norm_reward else None
        algorithm = self.serves
        if algorithm is None and self.progress is None:  # a copy, or one that was given to another algorithm
            self.attach(algorithm := algorithm_calling("train"))
        progress = self.progress if algorithm is None else _progress_of(algorithm)
        batch = self.replay.sample(batch_size, progress=progress)
        if self._carrying:
            self._draw = Draw(batch.id, torch.from_numpy(batch.weight.reshape(-1, 1)).to(self.device))
        elif self._weightless and not (batch.weight == 1.0).all():
            raise ConfigError(
                f"{self.replay.sampler!r} gives weights, which the algorithm does not put into its loss; use one "
                "WithPriorities, or a sampler without weights"
            )
        self._figures.drawn(algorithm, self.replay, batch)
        return self._samples(batch, env)

    def carry(self, on: bool) -> None:
        """Have the batches that are drawn from now on carry weights into the loss and TD errors back, or not."""
        self._carrying = on and type(self.replay.sampler) is not Uniform
        self._draw = None

    def feed_back(self) -> None:
        """Give the sampler what was seen of the last batch.

        Raises:
            ConfigError: Nothing was.
        """
        draw, self._draw = self._draw, None
        if draw is None:
            return
        errors = draw.errors()
        if errors is None:
            raise ConfigError(
                "the algorithm was given a batch with weights, but its loss made no difference of what it was given as "
                "`rewards`; WithPriorities cannot serve it"
            )
        self._fed(draw.ids, errors)

    def read_in(self, source: Any) -> None:
        """Add what a buffer of the library's own holds, in the order in which it was stored.

        Args:
            source: The buffer, or the path of its pickle. Pickles run code: read in none that you do not trust.

        Raises:
            ConfigError: It is no such buffer, or of other spaces or another number of environments.
        """
        self.replay.end_episode()  # one's own that goes on does not go on there
        for steps in blocks_of(source, self):
            length = len(steps["reward"])
            obs, after = (self._layout.stored(steps[name], (length, self.n_envs)) for name in ("obs", "next_obs"))
            action = self._layout.action(steps["action"], (length, self.n_envs))
            self.replay.extend(**steps | {"obs": obs, "next_obs": after, "action": action})
            ended = steps["terminated"][-1] | steps["truncated"][-1]
            self._left = _last(after), ~ended

    def reset(self) -> None:
        """Drop every stored step."""
        self.replay.clear()
        self.replay.end_episode()
        self._left = None

    def _end_what_was_left(self, obs: Obs) -> None:
        """Tell the replay which environments were reset without an end of their episode."""
        if self._left is None:
            return
        before, goes_on = self._left
        left = goes_on & ~same(obs, before)
        if left.any():
            self.replay.end_episode(left)

    @property
    def serves(self) -> OffPolicyAlgorithm | None:
        """The algorithm whose progress and logger it follows; None: none."""
        return None if self._algorithm is None else self._algorithm()

    def _fed(self, ids: npt.NDArray[np.int64], errors: npt.NDArray[Any]) -> None:
        """Give |δ| of rows to the sampler, each (B,)."""
        found = self.replay.update_priorities(ids, errors)
        self._figures.fed(self.serves, errors, len(ids) - found)

    def _samples(self, batch: Batch, env: VecNormalize | None) -> Samples:
        """Return a batch as the library has it."""
        rewards = batch.reward if self.n_steps == 1 else self._returns(batch, env)
        column = (-1, 1)
        normalized = rewards if self.n_steps > 1 else self._normalize_reward(rewards, env)
        reward_tensor = self.to_torch(normalized.reshape(column), copy=False)
        obs, next_obs = (self._observations(one, env) for one in (batch.obs, batch.next_obs))
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
        if isinstance(shown, dict):
            return {key: self.to_torch(value, copy=False) for key, value in shown.items()}
        return self.to_torch(shown, copy=False)

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
        own = ~batch.relabelled if "relabelled" in batch else np.ones(len(returns), np.bool_)  # others come normalized
        steps = np.arange(self.n_steps)
        slots = (batch.id[own, None] + steps * self.n_envs) % self.replay.capacity
        rewards = env.normalize_reward(self.replay.columns["reward"][slots].astype(np.float64))
        powers = (self.gamma or 0.0) ** steps * (steps < batch.n_steps[own, None])
        returns[own] = (rewards * powers).sum(1)
        return returns

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_draw": None, "_algorithm": None, "replay": self._snapshots.packed(self.replay)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.replay = self._snapshots.unpacked(state["replay"])
        asked: list[Any] = [one.compute_reward for one in self.replay.transforms if isinstance(one, Hindsight)]
        self._goals = asked[0].__self__ if asked else None  # a deep copy asks whom the original asks
        algorithm = algorithm_calling(*MAKES)
        if algorithm is not None:
            self._check_returns(algorithm)
        self.attach(algorithm)

    def _check_returns(self, algorithm: OffPolicyAlgorithm) -> None:
        """Raise ConfigError where an algorithm that loads this buffer has other n-step returns."""
        into = algorithm.replay_buffer
        n_steps = into.n_steps if isinstance(into, ReplayLabBuffer) else self.n_steps
        gamma = into.gamma if isinstance(into, ReplayLabBuffer) else algorithm.gamma
        for name, here in (("n_steps", n_steps), ("gamma", gamma)) if max(self.n_steps, n_steps) > 1 else ():
            if (there := getattr(self, name)) != here:
                raise ConfigError(f"`{name}` of the buffer that is loaded must be {here}, but is {there}")

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReplayLabBuffer":
        """Return a copy in memory, which no folder has snapshots of."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        apart = {"_draw": None, "_algorithm": None, "_snapshots": Snapshots(None)}
        made.__setstate__(deepcopy(self.__dict__ | apart, memo))
        return made


def _progress_of(algorithm: OffPolicyAlgorithm) -> float:
    return min(max(1.0 - algorithm._current_progress_remaining, 0.0), 1.0)


def _checked(sampler: Sampler) -> Sampler:
    """Return a sampler, if algorithms of this library can be served by it."""
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


def _copied(obs: Obs) -> Obs:
    return {key: value.copy() for key, value in obs.items()} if isinstance(obs, dict) else obs.copy()


def _last(obs: Obs) -> Obs:
    return {key: value[-1] for key, value in obs.items()} if isinstance(obs, dict) else obs[-1]
