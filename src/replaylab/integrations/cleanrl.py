"""A buffer for CleanRL's scripts, to be imported in place of ``cleanrl_utils.buffers.ReplayBuffer``."""

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, one_of, optional
from replaylab.episode_ends import terminated_and_truncated, truncated_by_time_limit
from replaylab.errors import ConfigError, DtypeError, FieldError
from replaylab.extras import needs
from replaylab.integrations.by_place import ByPlace, shaped, shaped_action, transition_fields
from replaylab.replay import Field, FrameStack, NStep, Sampler, Seed, Storage, Transform, Uniform
from replaylab.replay import ReplayBuffer as Replay
from replaylab.trees import same_rows

with needs("replaylab.integrations.cleanrl", "torch", " gymnasium"):
    import torch
    from gymnasium import spaces

FINAL = ("final_observation", "final_obs")
"""Keys of last observations in the ``infos`` of Gymnasium 0.29 and 1.x, with resets in the same step."""

SINGLE, DOUBLE, FLAG = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)
DICTS = (dict, Mapping)
"""Types of ``infos``. Most are a dict, which is recognized sooner than a mapping."""


class Columns(NamedTuple):
    """The columns of CleanRL's own batch, in its order: tensors (B, ...), rewards and dones (B, 1)."""

    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor


class ReplayBufferSamples(Columns):
    """A batch: the five columns of CleanRL's own batch, and three further attributes.

    Attributes:
        weights: Importance weights, float32 (B, 1); 1 under samplers that need no correction.
        ids: The steps' numbers, int64 (B,), for `ReplayBuffer.update_priorities`.
        discounts: With n-step returns γⁿ, or 0 where the episode terminated, float32 (B, 1); else None.
    """

    weights: torch.Tensor
    ids: npt.NDArray[np.int64]
    discounts: torch.Tensor | None


class ReplayBuffer(ByPlace):
    """CleanRL's buffer, with this library's samplers, transforms and storage underneath.

    The first seven arguments, and the arguments and results of `add` and `sample`, are those of
    ``cleanrl_utils.buffers.ReplayBuffer``, so a script runs after changing its import line. Its loop passes only
    ``terminations``. The buffer reads truncation by a time limit from ``infos``, so that n-step returns never cross an
    episode's end. If ``infos`` does not report it, call ``add(..., truncated=truncations)``.

    Args:
        buffer_size: C, the capacity over all environments.
        observation_space: Space of one environment: Box, Discrete, MultiDiscrete or MultiBinary.
        action_space: Space of one environment, of the same kinds.
        device: Device of the batches; "auto": CUDA if available.
        n_envs: E.
        optimize_memory_usage: Find next observations in the row that follows instead of storing them. Those that are in
            no row are stored separately, so nothing is lost, and every other option can be used.
        handle_timeout_termination: Whether "TimeLimit.truncated" in ``infos``, if it is a list of dicts, marks which of
            the `done` are truncations.
        sampler: Sampler of the batches.
        transforms: Transforms of the drawn steps: `NStep`, whose ``discounts`` then replace γ in the script's target;
            and `FrameStack` (with ``stacked_input=True``), which stores each frame once.
        autoreset: None: every step is a transition; a step that looks as if an environment reset itself after an
            episode's end raises `ConfigError`. "disabled": every step is a transition, without this check. "next_step":
            environments reset themselves in the step after an episode's end, Gymnasium 1.x's default, and that step is
            left out. If neither ``infos`` nor `truncated` reports a truncation, the reset after it is not recognized.
        storage: Storage of the rows; see `replaylab.ReplayBuffer`.
        seed: Seed of the draws; None: a number from NumPy's global generator, which the scripts seed.

    Attributes:
        replay: The `replaylab.ReplayBuffer` underneath.

    Raises:
        ConfigError: An argument is out of its range.
        FieldError: A space cannot be stored.

    Example:
        >>> from gymnasium import spaces
        >>> from replaylab.replay import Prioritized
        >>> rb = ReplayBuffer(100, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), "cpu", sampler=Prioritized(beta=0.4))
        >>> rb.add(np.zeros((1, 3)), np.ones((1, 3)), np.array([1]), np.ones(1), np.zeros(1, bool), {})
        >>> data = rb.sample(4)
        >>> data.rewards.shape, rb.update_priorities(data.ids, torch.ones(4))
        (torch.Size([4, 1]), 4)
    """

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
        transforms: ListOf[Transform] = (),
        autoreset: Literal["next_step", "disabled"] | None = None,
        storage: Storage | None = None,
        seed: Seed = None,
    ) -> None:
        spaces_of_one = (observation_space, action_space)
        self._declare(buffer_size, *spaces_of_one, n_envs, optimize_memory_usage, handle_timeout_termination)
        self.obs_shape = _shape(observation_space, "observation_space")
        self._action_shape = _shape(action_space, "action_space")
        self.action_dim = prod(self._action_shape)
        self.device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        seeded = np.random.randint(2**31) if seed is None else seed  # noqa: NPY002 - what the scripts seed
        self.replay = Replay(
            self.buffer_size * self.n_envs,
            self._fields(transforms),
            num_envs=self.n_envs,
            sampler=sampler,
            transforms=transforms,
            next_obs="derived" if self.optimize_memory_usage else "stored",
            autoreset=checked("autoreset", autoreset, optional(one_of("next_step", "disabled"))),
            storage=storage,
            seed=seeded,
        )
        self._obs_rows, self._env_rows = (self.n_envs, *self.obs_shape), (self.n_envs,)
        self._single_obs = np.dtype(observation_space.dtype) == SINGLE
        self._action_rows = (self.n_envs, self.action_dim) if len(self._action_shape) == 1 else None
        self._action_dtype = np.dtype(self.replay.fields["action"].dtype)
        self._nowhere = np.zeros(self.n_envs, np.bool_)
        self._no_flags = self._nowhere.tobytes()  # comparing bytes is several times as fast as `any`
        self._n_step = any(isinstance(transform, NStep) for transform in transforms)
        # Last observations of ended episodes whose final observation `infos` did not hold, and a mask of these.
        self._unexplained: tuple[npt.NDArray[Any], npt.NDArray[np.bool_]] | None = None

    @property
    def dones(self) -> npt.NDArray[np.float32]:
        """1 where the episode terminated, else 0."""
        return np.asarray(self._by_place("terminated"), np.float32)

    def reset(self) -> None:
        """Remove every stored step."""
        super().reset()
        self._unexplained = None

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Any,
        reward: Any,
        done: Any,
        infos: Any,
        truncated: Any = None,
    ) -> None:
        """Store one time step of every environment.

        Args:
            obs: (E, ...).
            next_obs: (E, ...). An episode's last observation in ``infos`` takes precedence.
            action: (E, ...).
            reward: (E,).
            done: Whether the episode terminated (E,); with a list of ``infos``, whether it ended.
            infos: What the vector environment returned; or a list of dicts, one an environment.
            truncated: Whether the episode was truncated (E,), in addition to the truncations in ``infos``.

        Raises:
            ConfigError: The environments seem to reset themselves in the step after an episode's end, but `autoreset`
                is None. Or they do so in the step that ends an episode, but `autoreset` is "next_step".
            ShapeError, DtypeError: A value does not fit the spaces.
        """
        before, after = shaped("obs", obs, self._obs_rows), shaped("next_obs", next_obs, self._obs_rows)
        rewards = shaped("reward", reward, self._env_rows)
        # Doubles for single precision are rounded here, as by CleanRL's buffer: rewards of vector environments, and
        # MuJoCo's observations, for which its scripts request float32. The buffer converts or refuses everything else.
        if self._single_obs and before.dtype == DOUBLE:
            before = before.astype(SINGLE)
        if self._single_obs and after.dtype == DOUBLE:
            after = after.astype(SINGLE)
        if rewards.dtype == DOUBLE:
            rewards = rewards.astype(SINGLE)
        ended = shaped("done", done, self._env_rows)
        if ended.dtype != FLAG:
            ended = ended.astype(FLAG)
        cut_off = self._nowhere if truncated is None else self._mask(truncated, "truncated")
        final_mask, resets_seen = None, not isinstance(infos, DICTS)  # with a list of infos, loops reset at once
        if resets_seen:
            if self.handle_timeout_termination and ended.tobytes() != self._no_flags:
                cut_off = cut_off | (self._mask([truncated_by_time_limit(info) for info in infos]) & ended)
                ended, _ = terminated_and_truncated(ended, cut_off)
        elif infos or truncated is not None:
            after, final_mask = self._with_final(after, infos)
            masks = [] if final_mask is None else [final_mask]
            masks += [self._mask(infos["_episode"])] if _has_episode_statistics(infos) else []
            cut_off = np.logical_or.reduce([cut_off, *masks]) & ~ended
        if self._unexplained is not None:
            self._check_resets(before, rewards, ended, *self._unexplained)
        self.replay.add(
            obs=before,
            action=self._actions(action),
            reward=rewards,
            next_obs=after,
            terminated=ended,
            truncated=cut_off,
        )
        self._unexplained = None
        if final_mask is None and not resets_seen:
            over = ended if cut_off is self._nowhere else ended | cut_off
            if over.tobytes() != self._no_flags:
                self._unexplained = (after.copy(), over.copy())

    def extend(self, *args: Any) -> None:
        """Store many time steps: the arguments of `add`, each with a time axis in front."""
        for step in zip(*args, strict=True):
            self.add(*step)

    def sample(self, batch_size: int, progress: float | None = None) -> ReplayBufferSamples:
        """Draw a batch.

        Args:
            batch_size: B.
            progress: Training progress in [0, 1], such as ``global_step / args.total_timesteps``, for the sampler's
                schedules (β).

        Raises:
            EmptyBufferError: Too few steps are stored.
            ConfigError: `progress` is out of its range.
        """
        batch = self.replay.sample(batch_size, progress=progress)
        data = ReplayBufferSamples(
            observations=self.to_torch(batch.obs.reshape(-1, *self.obs_shape), copy=False),
            actions=self.to_torch(batch.action, copy=False),
            next_observations=self.to_torch(batch.next_obs.reshape(-1, *self.obs_shape), copy=False),
            dones=self.to_torch(batch.terminated.reshape(-1, 1).astype(np.float32), copy=False),
            rewards=self.to_torch(batch.reward.reshape(-1, 1), copy=False),
        )
        data.weights = self.to_torch(batch.weight.reshape(-1, 1), copy=False)
        data.ids = batch.id
        data.discounts = self.to_torch(batch.discount.reshape(-1, 1), copy=False) if self._n_step else None
        return data

    def update_priorities(self, ids: npt.ArrayLike, td_error: Any) -> int:
        """Pass the learner's feedback to the sampler.

        Args:
            ids: The ids of a batch, ``data.ids``.
            td_error: δ of its rows, of any sign: a tensor or an array (B,) or (B, 1).

        Returns:
            The number of these steps that are still stored; for the others nothing changes.

        Raises:
            PriorityError: A value is NaN or infinite; nothing is changed.
            IdError, ShapeError, DtypeError: The arrays do not fit.
        """
        errors = td_error.detach().cpu().numpy() if isinstance(td_error, torch.Tensor) else np.asarray(td_error)
        return self.replay.update_priorities(ids, errors.reshape(-1))

    def to_torch(self, array: npt.NDArray[Any], copy: bool = True) -> torch.Tensor:
        """Return an array as a tensor on the buffer's device."""
        return torch.tensor(array, device=self.device) if copy else torch.as_tensor(array, device=self.device)

    def _fields(self, transforms: Any) -> dict[str, Field]:
        shape = self.obs_shape
        for transform in transforms if isinstance(transforms, ListOf) else ():  # otherwise ReplayBuffer refuses it
            if not isinstance(transform, (NStep, FrameStack)):
                raise ConfigError(
                    f"`transforms` of CleanRL's buffer must be NStep or FrameStack, which leave a batch's rows as its "
                    f"scripts take them, but got {transform!r}; use replaylab.ReplayBuffer for others"
                )
            if isinstance(transform, FrameStack):
                if not transform.stacked_input or shape[:1] != (transform.length,):
                    raise FieldError(
                        "FrameStack must have stacked_input=True and the length of the observations' first axis, but "
                        f"got {transform!r} for observations of shape {shape}; wrap the environment in its frame stack"
                    )
                shape = shape[1:]
        obs, dtype = Field(shape, np.dtype(self.observation_space.dtype)), np.dtype(self.action_space.dtype)
        action = Field((self.action_dim,), np.float32 if dtype == np.float64 else dtype)
        return transition_fields(obs, action)

    def _actions(self, action: Any) -> npt.NDArray[Any]:
        rows, dtype = self._action_rows, self._action_dtype
        actions = (
            shaped_action(action, self._env_rows, self._action_shape)
            if rows is None
            else shaped("action", action, rows)
        )
        if dtype.kind in "iu" and actions.dtype.kind == "f" and not (actions == np.rint(actions)).all():
            raise DtypeError(f"`action` must hold whole numbers, as the action space does, but got {actions.tolist()}")
        return actions if actions.dtype == dtype else actions.astype(dtype)

    def _mask(self, value: Any, name: str = "infos") -> npt.NDArray[np.bool_]:
        flags = shaped(name, value, self._env_rows)
        return flags if flags.dtype == FLAG else flags.astype(FLAG)

    def _with_final(self, after: Any, infos: Mapping[str, Any]) -> tuple[Any, npt.NDArray[np.bool_] | None]:
        """Return the next observations with final ones from ``infos``, and a mask of these; None without any."""
        for name in FINAL:
            if f"_{name}" in infos:
                over = self._mask(infos[f"_{name}"])
                if self.replay.autoreset == "next_step" and over.any():
                    raise ConfigError(
                        "these environments reset themselves in the step that ends an episode (`infos` has its last "
                        'observation), but the buffer was made with autoreset="next_step", which leaves the step after '
                        "it out; leave `autoreset` out"
                    )
                after = after.copy()
                for env in np.flatnonzero(over):
                    after[env] = shaped(f"infos[{name!r}]", infos[name][env], self.obs_shape)
                return after, over
        return after, None

    def _check_resets(self, obs: Any, rewards: Any, ended: Any, last: Any, over: Any) -> None:
        """Raise `ConfigError` for a step that is the reset of an ended episode's environment.

        Args:
            obs: The step's observations.
            rewards: Its rewards.
            ended: Whether it terminated episodes.
            last: The previous step's next observations.
            over: Whether it ended episodes.
        """
        if self.replay.autoreset is not None:
            return
        obs, last = (values.astype(self.observation_space.dtype, copy=False) for values in (obs, last))
        again = same_rows(obs, last) & over & (rewards == 0.0) & ~ended
        if again.any():
            raise ConfigError(
                f"environments {np.flatnonzero(again).tolist()} reset themselves in the step after an episode's end "
                "(AutoresetMode.NEXT_STEP, Gymnasium 1.x's default), which is no transition; make them with "
                'autoreset_mode=AutoresetMode.SAME_STEP, or this buffer with autoreset="next_step"; if that step was a '
                'transition, with autoreset="disabled"'
            )


def _has_episode_statistics(infos: Mapping[str, Any]) -> bool:
    """Whether ``infos`` has the episode statistics of `RecordEpisodeStatistics`, and not another value of its key."""
    episode = infos.get("episode")
    return "_episode" in infos and isinstance(episode, Mapping) and {"r", "l"} <= episode.keys()


def _shape(space: Any, name: str) -> tuple[int, ...]:
    """Return the shape in which a space's values are stored; numbers have their own axis."""
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return tuple(space.shape or ()) or (1,)
    if isinstance(space, spaces.Discrete):
        return (1,)
    raise FieldError(f"`{name}` must be Box, Discrete, MultiDiscrete or MultiBinary of Gymnasium, but got {space!r}")
