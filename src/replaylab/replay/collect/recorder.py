"""Environments that store their own transitions, in every autoreset mode."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from replaylab.arguments import checked, flag, mapping, optional, shown
from replaylab.errors import ConfigError, FieldError
from replaylab.replay.buffer import ReplayBuffer
from replaylab.replay.collect.env_adapter import EnvAdapter, Returned, spaces_of
from replaylab.replay.data.arrays import fitted
from replaylab.replay.data.fields import names_error
from replaylab.replay.protocols import Replay, StackedInputReplay, a_replay
from replaylab.replay.transforms.transform import OUTCOME
from replaylab.trees import flatten, flatten_as, map_leaves, take, unflatten

FROM_ENV = ("obs", "next_obs", *OUTCOME)
"""Fields whose values the environments give."""

UNRECORDED = ("step_async", "step_wait", "reset_async", "reset_wait")
"""Methods of vector environments that would bypass the recorder."""

NEW, READY, MOVING, OVER = range(4)
"""States of an environment, by the next event: its first observation, an action, an action's result, a reset."""

ALL = slice(None)
Rows = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]
"""By path, with one row for each environment."""


class ReplayRecorder:
    """Environments that store their own transitions.

    Use it like the environments themselves: `reset`, `step`, and for EnvPool `send` and `recv`, have the same
    arguments and results; other attributes are those of the environments. In each of Gymnasium's autoreset modes, an
    ended episode's true last observation is stored, no step for a reset, and no episode that crosses one. Observations
    are copied, so environments may reuse the arrays that they return. In SAME_STEP mode, ``infos["final_obs"]`` is
    stored. Gymnasium's vector environments do not copy it before they reset a sub-environment, which may overwrite it
    if it reuses its array. `replaylab.envs.make_vector_env` copies it.

    Sub-environment i is row i of what the environments return; in a buffer of R replicas with E environments
    each it is environment i mod E of replica ⌊i/E⌋. Of obs, reward, next_obs, terminated and truncated those
    are stored that the buffer declares; its other fields, except for action, are given to `step` by name.

    Args:
        env: A Gymnasium vector environment, or a single one, with any wrappers; or an EnvPool, of its
            gymnasium or dm API.
        buffer: Where to store, a `Replay`; its `num_envs`, `replicas` and `autoreset` must fit the environments.
        reset_ended: For environments that do not reset themselves (a single one; autoreset mode DISABLED):
            whether `step` resets those whose episode ended. It then returns their new episode's first
            observation, and ``info`` has their last one as ``final_obs`` (with the mask ``_final_obs``) and
            the reset's info as ``reset_info``.

    Attributes:
        env: The environments.
        buffer: The buffer.
        ids: The ids of the last stored steps, int64 ``[R] [E]``; −1 where none was stored.

    Raises:
        ConfigError: The autoreset mode is not declared, or the buffer does not fit.
        FieldError: The buffer declares no field ``obs``.

    Example:
        >>> import gymnasium as gym
        >>> from replaylab.replay import ReplayRecorder
        >>> envs = ReplayRecorder.for_env(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"), 1000, seed=0)
        >>> obs, info = envs.reset(seed=0)
        >>> for _ in range(100):
        ...     obs, reward, terminated, truncated, info = envs.step((obs[:, 2] > 0).astype(int))
        >>> envs.buffer.sample(32).obs.shape
        (32, 4)
    """

    def __init__(self, env: Any, buffer: Replay, *, reset_ended: bool = False) -> None:
        self.env, self.buffer = env, checked("buffer", buffer, a_replay)
        self._adapter = adapter = EnvAdapter(env)
        if isinstance(env, type) or not (adapter.pool or callable(getattr(env, "step", None))):
            raise ConfigError(f"`env` must be an environment, with `reset` and `step`, but got {shown(env)}")
        self._lead = tuple(axis for axis in (buffer.replicas, buffer.num_envs) if axis is not None)
        self._needs_resets = adapter.mode in (None, "disabled")  # by the caller, or by `reset_ended`
        self._reset_ended = checked("reset_ended", reset_ended, flag) and self._needs_resets
        self._check_fit()

        self._trees = buffer.given_fields if isinstance(buffer, StackedInputReplay) else buffer.fields
        self._leaves = {name: dict(flatten(tree, name)) for name, tree in self._trees.items()}
        self._nested = any(name not in leaves for name, leaves in self._leaves.items())
        self._step_fields = [name for name in self._trees if name not in FROM_ENV]
        self._extra = set(self._step_fields) - {"action"}
        self._outcome = [name for name in OUTCOME if name in self._trees]
        self._declared_alike = self._trees["obs"] == self._trees.get("next_obs")
        self._sees_ends = {"terminated", "truncated"} <= self._trees.keys()  # so that the buffer knows episodes
        self._reshapes = self._lead != (adapter.num_envs,)

        self._numbers = np.arange(adapter.num_envs, dtype=np.int32)
        self._state = np.full(adapter.num_envs, NEW, np.int8)
        self._cut_short = False  # whether environments made steps that are not stored
        self._last_rows = self._numbers  # environments of the last observations
        self._obs = self._zeros(["obs"])  # the last observation of each environment
        self._next = self._zeros({"next_obs"} & self._trees.keys())  # scratch memory if only some return theirs
        self._step_values = self._zeros(self._step_fields)  # the caller's values for each environment's next step
        self.ids: Any = self._none_stored()

    @classmethod
    def for_env(cls, env: Any, capacity: int, *, reset_ended: bool = False, **buffer_options: Any) -> "ReplayRecorder":
        """Return a recorder with a new buffer, ``ReplayBuffer.for_env(env, capacity, **buffer_options)``.

        Raises:
            FieldError, ConfigError: As for `ReplayBuffer.for_env`.
        """
        return cls(env, ReplayBuffer.for_env(spaces_of(env), capacity, **buffer_options), reset_ended=reset_ended)

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None, env_ids: Any = None) -> Any:
        """Start new episodes and return what the environments return; open episodes end at their last step.

        Args:
            seed: For the environments.
            options: For the environments; with ``"reset_mask"``, bool (N,), only those are reset.
            env_ids: With EnvPool: the environments to reset; None: all.

        Raises:
            ConfigError: The pool is asynchronous, or a step was cut short and not all environments are reset.
            FieldError, ShapeError, DtypeError: The observations do not fit their field.
        """
        if self._adapter.is_async:
            raise ConfigError("an asynchronous EnvPool has no `reset`; call async_reset(), then recv()")
        options = checked("options", options, optional(mapping))
        rows = self._checked_rows(env_ids)
        call = () if env_ids is None else (rows,)
        if options is not None and options.get("reset_mask") is not None:
            rows = np.flatnonzero(options["reset_mask"]).astype(np.int32)
        if self._cut_short and len(rows) < len(self._numbers):
            raise ConfigError("the last step was cut short before it was stored; call reset() for all environments")
        arguments = {
            "seed": seed,
            "options": None if options is None else dict(options),
        }  # environments may remove the mask
        self._end_episodes(rows)
        self._state[rows] = NEW
        result = self.env.reset(*call, **{name: value for name, value in arguments.items() if value is not None})
        returned = self._adapter.read(result, self._trees["obs"])
        self._keep(self._obs_arrays(returned, rows), rows)
        self._cut_short &= len(rows) < len(self._numbers)
        return result

    def step(self, actions: Any, env_ids: Any = None, **extra: Any) -> Any:
        """Step the environments, store the transitions, and return what the environments returned.

        Args:
            actions: For the environments, one for each.
            env_ids: With EnvPool: the environments the actions are for, as for `send`.
            **extra: The buffer's further fields, such as ``log_prob=...``: one value for each environment.

        Raises:
            FieldError, ShapeError, DtypeError: A field is missing, unknown or does not fit; nothing was stepped.
            ConfigError: An environment was not reset, or a step was cut short; nothing was stepped.
        """
        if self._adapter.pool:
            self.send(actions, env_ids, **extra)
            return self.recv()
        if env_ids is not None:
            raise ConfigError("`env_ids` is for EnvPool; these environments are stepped all together, leave it out")
        self._give(ALL, actions, extra)
        result = self._returned(self.env.step, actions)
        return self._with_resets(result) if self._reset_ended and (self._state == OVER).any() else result

    def send(self, actions: Any, env_ids: Any = None, **extra: Any) -> None:
        """Send actions to EnvPool; the transitions are stored when `recv` gets the results.

        Args:
            actions: One for each of `env_ids`.
            env_ids: int (M,). None: those of the last `recv` in asynchronous mode, else all.
            **extra: The buffer's further fields, one value for each of `env_ids`.
        """
        rows = self._last_rows if env_ids is None and self._adapter.is_async else self._checked_rows(env_ids)
        self._give(rows, actions, extra)
        self.env.send(actions, rows)

    def recv(self) -> Any:
        """Receive what EnvPool's next `batch_size` environments return, and store their transitions."""
        return self._returned(self.env.recv)

    def async_reset(self) -> None:
        """Start new episodes in EnvPool; `recv` returns their first observations.

        Raises:
            ConfigError: A step has not been received; it could not be distinguished from a reset.
        """
        moving = np.flatnonzero(self._state == MOVING).tolist()
        if moving:
            raise ConfigError(
                f"`async_reset` needs every step received, but environments {moving} are still under way; call recv() "
                "for them first"
            )
        self._end_episodes(self._numbers)
        self._state[:] = NEW
        self.env.async_reset()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        if name in UNRECORDED:
            raise AttributeError(f"`{name}` would step the environments past the recorder; use `step` and `reset`")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"ReplayRecorder({self.env}, {self.buffer})"

    def _check_fit(self) -> None:
        buffer, mode, count = self.buffer, self._adapter.mode, self._adapter.num_envs
        places = int(np.prod(self._lead, dtype=np.int64))
        if places != count:
            raise ConfigError(
                f"the buffer must have a place for each of the {count} environments, but has "
                f"(replicas={buffer.replicas}, num_envs={buffer.num_envs}), that is {places}; make it with "
                "ReplayRecorder.for_env, or with that many"
            )
        if buffer.autoreset not in ((None, "disabled") if self._needs_resets else (mode,)):
            raise ConfigError(
                f"the buffer must have the environments' autoreset mode, {mode!r}, but has {buffer.autoreset!r}; "
                f"make it with ReplayRecorder.for_env, or with autoreset={mode!r}"
            )
        if "obs" not in buffer.fields:
            raise FieldError(f"the buffer must declare the field `obs`, but has {', '.join(buffer.fields)}; add it")

    def _checked_rows(self, env_ids: Any) -> Rows:
        if env_ids is None:
            return self._numbers
        rows, count = np.asarray(env_ids), len(self._numbers)
        sound = rows.ndim == 1 and rows.dtype.kind in "iu" and 0 < len(np.unique(rows)) == len(rows)
        if not sound or rows.min() < 0 or rows.max() >= count:
            raise ConfigError(f"`env_ids` must be different whole numbers from 0 to {count - 1}, but got {env_ids!r}")
        return rows.astype(np.int32)

    def _check_ready(self, rows: Rows | slice) -> None:
        if self._cut_short:
            raise ConfigError("the last step was cut short before it was stored; call reset() to continue")
        state = self._state[rows]
        if (state == READY).all():
            return
        of = {kind: self._numbers[rows][state == kind].tolist() for kind in (NEW, MOVING, OVER)}
        if of[NEW]:
            fix = "recv() what `async_reset` started" if self._adapter.is_async else "call reset()"
            raise ConfigError(f"environments {of[NEW]} have no observation to act on yet; {fix} first")
        if of[MOVING]:
            raise ConfigError(
                f"environments {of[MOVING]} are at the step sent last; call recv() before sending another"
            )
        call = 'reset(options={"reset_mask": terminated | truncated})' if self._adapter.batched else "reset()"
        raise ConfigError(
            f"the episodes of environments {of[OVER]} ended, and these do not reset themselves; call {call}, or make "
            "the recorder with reset_ended=True"
        )

    def _give(self, rows: Rows | slice, actions: Any, extra: dict[str, Any]) -> None:
        """Record the actions and extra fields of the steps that these environments make next."""
        self._check_ready(rows)
        if extra.keys() != self._extra:
            raise names_error("step", extra, [name for name in self._step_fields if name in self._extra])
        count = len(self._numbers[rows]) if self._adapter.batched else None
        fresh: Arrays = {}
        for name in self._step_fields:
            fresh |= self._fitted(name, actions if name == "action" else extra[name], count)
        for path, values in fresh.items():
            self._step_values[path][rows] = values
        self._state[rows] = MOVING

    def _returned(self, call: Any, *args: Any) -> Any:
        """Call the environments, store what they return, and return it."""
        self._cut_short = True
        result = call(*args)
        returned = self._adapter.read(result, self._trees["obs"])
        rows, obs = ALL if returned.rows is None else returned.rows, self._obs_arrays(returned, ALL)
        self._store(returned, obs)
        self._keep(obs, rows)
        if self._needs_resets:  # in the other modes a buffer always knows the ends
            self._mark_ends(self._numbers[rows][returned.terminated | returned.truncated])
        self._cut_short = False
        return result

    def _store(self, returned: Returned, obs: Arrays) -> None:
        """Store the steps that led to these observations."""
        where = None
        if returned.rows is not None:
            where = self._everywhere(returned, self._state[returned.rows] == MOVING)
            if not where.any():
                self.ids = self._none_stored()
                return
        values = {**self._obs, **self._step_values}
        if "next_obs" in self._trees:
            if self._declared_alike:
                obs = {f"next_{path}": leaf for path, leaf in obs.items()}
            else:
                obs = self._fitted("next_obs", returned.obs, self._count(returned))
            for path, leaf in obs.items():
                values[path] = self._everywhere(returned, leaf, self._next[path])
        for name in self._outcome:
            values[name] = self._everywhere(returned, getattr(returned, name))
        steps = {path: self._shaped(value) for path, value in values.items()} if self._reshapes else values
        if self._nested:
            steps = unflatten(self._trees, (steps[path] for leaves in self._leaves.values() for path in leaves))
        if returned.final_obs is not None and self._adapter.mode == "same_step":
            steps["final_obs"] = map_leaves(self._shaped, returned.final_obs)
        self.ids = self.buffer.add(where=None if where is None else self._shaped(where), **steps)

    def _keep(self, obs: Arrays, rows: Rows | slice) -> None:
        """Copy the observations that these environments' next steps begin with."""
        for path, leaf in obs.items():
            self._obs[path][rows] = leaf
        self._state[rows], self._last_rows = READY, self._numbers[rows]

    def _mark_ends(self, ended: Rows) -> None:
        """Expect a reset of these environments, and end their episodes in a buffer without both end flags."""
        self._state[ended] = OVER
        if not self._sees_ends and len(ended):
            self._end_episodes(ended)

    def _obs_arrays(self, returned: Returned, rows: Rows | slice) -> Arrays:
        """Return the observations by path; if all environments returned theirs, only those of `rows`."""
        leaves = self._fitted("obs", returned.obs, self._count(returned))
        return leaves if returned.rows is not None else {path: leaf[rows] for path, leaf in leaves.items()}

    def _count(self, returned: Returned) -> int:
        return len(self._numbers if returned.rows is None else returned.rows)

    def _fitted(self, name: str, value: Any, count: int | None) -> Arrays:
        """Return a field's values of `count` environments (None: no axis) by path, in their declared dtypes.

        Raises:
            FieldError, ShapeError, DtypeError: The value does not fit the field.
        """
        arrays = self._by_path(name, value)
        for path, leaf in arrays.items():
            field = self._leaves[name][path]
            shape = field.shape if count is None else (count, *field.shape)
            if type(leaf) is not np.ndarray or leaf.dtype != field.dtype or leaf.shape != shape:
                arrays[path] = fitted(path, leaf, field.dtype, field.shape, None, None, count)
        return arrays

    def _zeros(self, names: Iterable[str]) -> Arrays:
        """Return memory for one value of each environment in these fields, by path."""
        return {
            path: np.zeros((len(self._numbers), *field.shape), field.dtype)
            for name in names
            for path, field in self._leaves[name].items()
        }

    def _by_path(self, name: str, value: Any) -> dict[str, Any]:
        """Return a field's value, or its parts if the field is nested, by path."""
        if name in self._leaves[name]:
            return {name: value}
        parts = dict(flatten_as(self._trees[name], value, name))
        if parts.keys() != self._leaves[name].keys():
            raise names_error(name, parts, self._leaves[name])
        return parts

    def _everywhere(self, returned: Returned, values: Any, out: Any = None) -> Any:
        """Return values of the environments that returned, (M, ...), as an array of all (N, ...)."""
        if returned.rows is None:
            return values
        out = np.zeros((len(self._numbers), *values.shape[1:]), values.dtype) if out is None else out
        out[returned.rows] = values
        return out

    def _shaped(self, values: Any) -> Any:
        """Return an array of all environments with the buffer's leading axes."""
        return values.reshape(self._lead + values.shape[1:]) if self._reshapes and values is not None else values

    def _none_stored(self) -> Any:
        return np.full(self._lead, -1, np.int64) if self._lead else -1

    def _end_episodes(self, rows: npt.NDArray[Any]) -> None:
        where = np.zeros(len(self._numbers), np.bool_)
        where[rows] = True
        self.buffer.end_episode(where=self._shaped(where))

    def _with_resets(self, result: Any) -> Any:
        """Reset the environments whose episodes ended; return the step's result with their first observations."""
        obs, reward, terminated, truncated = deepcopy(result[:4])  # which a reset may overwrite
        info: Mapping[str, Any] = result[4]
        if not self._adapter.batched:
            first, reset_info = self.reset()
            return first, reward, terminated, truncated, {**info, "final_obs": obs, "reset_info": reset_info}
        over = self._state == OVER
        final_obs = np.full(len(over), None, object)
        for i in np.flatnonzero(over):
            final_obs[i] = take(obs, i)
        first, reset_info = self.reset(options={"reset_mask": over})
        reset_infos = {"final_obs": final_obs, "_final_obs": over, "reset_info": reset_info}
        return first, reward, terminated, truncated, {**info, **reset_infos}
