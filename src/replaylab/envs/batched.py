"""The base of vector environments that step all their copies with NumPy."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from replaylab.arguments import InvalidArgument, checked, instance, mapping, optional, seed_number, shown, takes, whole
from replaylab.errors import ConfigError, ShapeError
from replaylab.trees import take

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


SINGLE = instance(gym.Env, "an environment of Gymnasium's")
VECTOR = instance(VectorEnv, "a vector environment of Gymnasium's")


def autoreset(value: Any) -> AutoresetMode:
    """Autoreset mode: the behavior when an episode ends."""
    try:
        return AutoresetMode(value)
    except ValueError:
        raise InvalidArgument('"NextStep", "SameStep", "Disabled" or an AutoresetMode') from None


def autoreset_of(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Return what happens when an episode of a vector environment ends.

    Raises:
        ConfigError: The environment does not declare its mode.
    """
    try:
        return AutoresetMode(env.metadata["autoreset_mode"])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f'{env} must declare what happens when an episode ends: metadata["autoreset_mode"] must be an AutoresetMode'
        ) from error


class BatchedEnv(VectorEnv[Any, Array, Array]):
    """Base of vector environments that step E copies in one array; copy i depends only on seed i.

    Copy i equals the single environment of the same seed, step for step, and all equal Gymnasium's
    `SyncVectorEnv`, in every autoreset mode. A subclass defines how a copy starts (`_start`), how all copies advance
    (`_advance`), and what is observed if that is not the variables (`_observe`).

    Args:
        num_envs: E, the number of copies.
        observation_space: Observation space of one copy.
        action_space: Action space of one copy.
        variables: Shape and dtype of one copy's state; ``_variables`` holds E of them, ``(*shape, E)``.
        max_episode_steps: Largest number of steps of an episode; None: no limit.
        autoreset_mode: NEXT_STEP: the step after an end resets. SAME_STEP: the step that ends also resets;
            ``infos["final_obs"]`` holds the true last observations. DISABLED: the caller resets, with
            ``reset(options={"reset_mask": mask})``.

    Example:
        >>> class Corridor(BatchedEnv):  # walk right, to the end of a corridor of ten cells
        ...     def __init__(self, num_envs=1, *, autoreset_mode="SameStep"):
        ...         cell = ((), np.int64)  # shape and dtype of what a copy's future depends on
        ...         super().__init__(num_envs, spaces.Discrete(10), spaces.Discrete(2), cell, 50, autoreset_mode)
        ...     def _start(self, generator, options):
        ...         return generator.integers(5)
        ...     def _advance(self, action):
        ...         self._variables = np.clip(self._variables + 2 * action - 1, 0, 9)
        ...         terminated = self._variables == 9
        ...         return terminated.astype(np.float32), terminated
        >>> envs = Corridor(3)
        >>> obs, info = envs.reset(seed=[1, 2, 3])
        >>> obs, reward, terminated, truncated, info = envs.step(np.ones(3, int))
        >>> reward.tolist()
        [0.0, 0.0, 0.0]
    """

    single_action_space: spaces.Discrete

    @takes(num_envs=whole(most=2**31 - 1), max_episode_steps=optional(whole()), autoreset_mode=autoreset)
    def __init__(
        self,
        num_envs: int,
        observation_space: Space[Any],
        action_space: spaces.Discrete,
        variables: tuple[tuple[int, ...], npt.DTypeLike],
        max_episode_steps: int | None,
        autoreset_mode: str | AutoresetMode,
    ) -> None:
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self._obs_dtype = observation_space, observation_space.dtype
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        shape, dtype = variables
        self._variables = np.zeros((*shape, num_envs), dtype)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended = np.ones(num_envs, np.bool_)
        self._begun = False
        self._generators = [np.random.Generator(np.random.PCG64()) for _ in range(num_envs)]

    @abstractmethod
    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> npt.ArrayLike:
        """Return the variables of one copy at the start of an episode."""

    @abstractmethod
    def _advance(self, action: npt.NDArray[np.intp]) -> tuple[Floats, Bools]:
        """Advance all copies by one step, in place; return rewards float32 (E,) and terminated bool (E,)."""

    def _observe(self) -> Any:
        """Return the observations of all copies as new arrays; here the variables, (E,) or (E, n), in their dtype."""
        return self._variables.T.astype(self._obs_dtype, order="C")

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every copy, or in those of ``options["reset_mask"]``.

        Args:
            seed: One for each copy; an int s means s, s + 1, ...; None continues with the current generators.
            options: ``reset_mask``, bool (E,), and what the environment itself knows.

        Returns:
            Observations, and no infos.

        Raises:
            ShapeError: There is not one seed for each copy, or the mask is not bool (E,).
            ConfigError: A seed is negative.
        """
        mask = reset_mask(options, self.num_envs)
        for i, copy_seed in enumerate(each_seed(seed, self.num_envs)):
            if copy_seed is not None and mask[i]:
                self._use_generator(i, seeding.np_random(copy_seed)[0])
        self._begun = True
        self._start_episodes(mask, options or {})
        return self._observe(), {}

    def use_generators(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw the starts of episodes from these generators from now on; a copy with a new one forgets its past."""
        for i, generator in enumerate(generators):
            if generator is not self._generators[i]:
                self._use_generator(i, generator)

    def _use_generator(self, i: int, generator: np.random.Generator) -> None:
        self._generators[i] = generator
        self._variables[..., i] = 0  # what an environment keeps over episodes must depend on the seed alone, too

    def step(self, action: npt.ArrayLike) -> tuple[Any, Floats, Bools, Bools, dict[str, Any]]:
        """Step every copy.

        Args:
            action: Integers (E,).

        Returns:
            Observations, rewards float32 (E,), terminated and truncated bool (E,), infos.

        Raises:
            ConfigError: An action is not in the action space.
            ResetNeeded: No episode has begun; or, in DISABLED mode, one that has ended was not reset.
        """
        starting = self._ended if np.count_nonzero(self._ended) else None
        if not self._begun or (starting is not None and self.autoreset_mode is AutoresetMode.DISABLED):
            raise self._reset_needed()
        reward, terminated = self._advance(self._checked_action(action))
        self._steps += 1
        if self.max_episode_steps is None:
            truncated = np.zeros(self.num_envs, np.bool_)
        else:
            truncated = self._steps >= self.max_episode_steps
        if starting is not None:  # NEXT_STEP: this step only starts the next episode
            self._start_episodes(starting, {})
            for values in (reward, terminated, truncated):
                values[starting] = 0
        self._ended = terminated | truncated
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and np.count_nonzero(self._ended):
            infos = self._final_infos(self._ended)
            self._start_episodes(self._ended, {})
        return self._observe(), reward, terminated, truncated, infos

    def state(self) -> dict[str, Array]:
        """Return the complete state as new arrays (E, ...) by name, for `restore`."""
        return {
            "variables": np.moveaxis(self._variables, -1, 0).copy(),
            "steps": self._steps.copy(),
            "ended": self._ended.copy(),
            "begun": np.array(self._begun),
            "generators": packed(self._generators),
        }

    def restore(self, state: dict[str, Array]) -> Any:
        """Continue from what `state` returned, in this environment or in another made in the same way.

        Returns:
            The observations that the last `step` or `reset` before `state` returned.

        Raises:
            ShapeError: It was taken from another number of copies, or its variables have another shape.
        """
        variables = np.moveaxis(state["variables"], 0, -1)
        if variables.shape != self._variables.shape:
            raise ShapeError(
                f"the state to restore must hold variables of shape {self._variables.shape}, but got "
                f"{variables.shape}; it belongs to another environment"
            )
        self._variables[:] = variables
        self._steps[:] = state["steps"]
        self._ended = state["ended"].copy()
        self._begun = bool(state["begun"])
        self._generators = unpack(state["generators"])
        return self._observe()

    def _start_episodes(self, mask: Bools, options: dict[str, Any]) -> None:
        for i in mask.nonzero()[0].tolist():
            self._variables[..., i] = self._start(self._generators[i], options)
        self._steps[mask] = 0
        self._ended = self._ended & ~mask

    def _final_infos(self, ended: Bools) -> dict[str, Any]:
        """Return what `SyncVectorEnv` reports of the episodes that ended in this step."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        obs = self._observe()
        for i in ended.nonzero()[0].tolist():
            final_obs[i] = take(obs, i)
        return {"final_obs": final_obs, "_final_obs": ended, "final_info": {}, "_final_info": ended.copy()}

    def _reset_needed(self) -> ResetNeeded:
        if not self._begun:
            return ResetNeeded("an episode must be started before the first step; call reset()")
        return ResetNeeded(
            "in DISABLED mode an ended episode must be reset before the next step, but environments "
            f"{self._ended.nonzero()[0].tolist()} were not; call reset(options={{'reset_mask': mask}})"
        )

    def _checked_action(self, action: npt.ArrayLike) -> npt.NDArray[np.intp]:
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise ShapeError(
                f"`action` must be integers of shape ({self.num_envs},), but got {action.dtype}{list(action.shape)}"
            )
        counted = action - self.single_action_space.start if self.single_action_space.start else action
        if np.maximum.reduce(counted.astype(np.uint64)) >= np.uint64(self.single_action_space.n):  # negatives wrap
            raise ConfigError(f"`action` must be in {self.single_action_space}, but got {action.tolist()}")
        return counted.astype(np.intp, copy=False)


def each_seed(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """Return a seed, or None, for each copy.

    Raises:
        ShapeError: The number of seeds is not that of the copies.
        ConfigError: A seed is not a whole number, or is negative.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, (int, np.integer)):
        return [checked("seed", seed, seed_number) + i for i in range(num_envs)]
    if not isinstance(seed, (list, tuple, range, np.ndarray)):
        raise ConfigError(f"`seed` must be a whole number, one for each environment, or None, but got {shown(seed)}")
    if len(seed) != num_envs:
        raise ShapeError(f"`seed` must hold one seed for each of the {num_envs} environments, but got {len(seed)}")
    return [None if copy_seed is None else checked("seed", copy_seed, seed_number) for copy_seed in seed]


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> Bools:
    """Return which copies a reset with these options starts again, bool (E,).

    Raises:
        ShapeError: The mask is not bool (E,).
    """
    mask = (checked("options", options, optional(mapping)) or {}).get("reset_mask")
    if mask is None:
        return np.ones(num_envs, np.bool_)
    if not isinstance(mask, np.ndarray) or mask.shape != (num_envs,) or mask.dtype != np.bool_:
        got = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else repr(mask)
        raise ShapeError(f"`options['reset_mask']` must be a bool array of shape ({num_envs},), but got {got}")
    return mask


class SingleEnv(gym.Env[Any, Any]):
    """A single environment that is the only copy of a vectorised one, so that there is one implementation.

    Args:
        vector: The vectorised environment, with one copy, in DISABLED mode.
    """

    def __init__(self, vector: BatchedEnv) -> None:
        self._vector = vector
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return its first observation, and no info."""
        super().reset(seed=seed)
        self._vector.use_generators([self.np_random])
        obs, infos = self._vector.reset(options=options)
        return take(obs, 0), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; return observation, reward, terminated, truncated, info."""
        obs, reward, terminated, truncated, infos = self._vector.step([action])
        return take(obs, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), infos


LOW = (1 << 64) - 1


def packed(generators: Sequence[np.random.Generator]) -> npt.NDArray[np.uint64]:
    """Return the states of PCG64 generators, uint64 (E, 6).

    Example:
        >>> generator = np.random.default_rng(3)
        >>> (restored,) = unpack(packed([generator]))
        >>> restored.random() == generator.random()
        True
    """
    rows = []
    for generator in generators:
        entries = generator.bit_generator.state
        state, inc = entries["state"]["state"], entries["state"]["inc"]
        rows.append((state >> 64, state & LOW, inc >> 64, inc & LOW, entries["has_uint32"], entries["uinteger"]))
    return np.array(rows, np.uint64).reshape(-1, 6)


def unpack(states: npt.NDArray[np.uint64]) -> list[np.random.Generator]:
    """Return new generators in the given states."""
    generators = []
    for row in states:
        high, low, inc_high, inc_low, has_uint32, uinteger = (int(number) for number in row)
        bits = np.random.PCG64()
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        generators.append(np.random.Generator(bits))
    return generators
