"""Transition tables: outcomes of each action in each state, with their probabilities; environments defined by one.

Shapes: S states, A actions, K outcomes at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.envs.toy_text.frozen_lake import MAPS
from gymnasium.vector import AutoresetMode

from replaylab.arguments import FRACTION, check, checked, instance, reals, shown, takes, truths, wholes
from replaylab.envs.batched import BatchedEnv, Bools, Floats
from replaylab.errors import ConfigError, ShapeError

FROZEN_LAKE = "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv"


@dataclass(frozen=True)
class TransitionTable:
    """A finite Markov decision process.

    Attributes:
        probability: Probability of each outcome, float64 (S, A, K); 0 where there are fewer than K.
        next_state: int64 (S, A, K).
        reward: float64 (S, A, K).
        terminated: bool (S, A, K).
        start: Probability of each state as the first, float64 (S,).
    """

    probability: npt.NDArray[np.float64]
    next_state: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    start: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        outcomes = reals("S", "A", "K")
        check(self, probability=outcomes, next_state=wholes("S", "A", "K"), reward=outcomes, terminated=truths)
        check(self, start=reals("S"))
        shape = self.probability.shape
        shapes = {self.next_state.shape, self.reward.shape, self.terminated.shape}
        if shapes != {shape} or len(shape) != 3 or self.start.shape != shape[:1]:
            raise ShapeError(
                "a table's `probability`, `next_state`, `reward` and `terminated` must have one shape (S, A, K), and "
                f"`start` (S,), but got {shape}, {sorted(shapes)} and {self.start.shape}"
            )
        if not ((self.next_state >= 0) & (self.next_state < shape[0])).all():
            raise ConfigError(f"a table's `next_state` must be from 0 to {shape[0] - 1}, but got {self.next_state}")
        for name, chances in (("probability", self.probability), ("start", self.start)):
            if not ((chances >= 0.0).all() and np.allclose(chances.sum(-1), 1.0, rtol=0.0, atol=1e-6)):
                raise ConfigError(
                    f"a table's `{name}` must be chances that add up to 1"
                    f"{' of each action in each state' if name == 'probability' else ''}, but got {chances}"
                )

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.probability)

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return len(self.probability[0])

    @classmethod
    def of(cls, env: "gym.Env[Any, Any] | str", **kwargs: Any) -> "TransitionTable":
        """Read the table of an environment that has one, as Gymnasium's toy-text environments do.

        Args:
            env: An environment, or the name of one, in wrappers that leave steps and rewards as they are. Its attribute
                ``P[state][action]`` lists the outcomes ``(probability, next_state, reward, terminated)``, and
                ``initial_state_distrib`` the first states.
            **kwargs: For the environment's constructor.

        Raises:
            ConfigError: The environment has no such table, or does not step by it; or each that is made has another.

        Example:
            >>> TransitionTable.of("CliffWalking-v1").probability.shape
            (48, 4, 1)
        """
        if isinstance(env, str):
            try:
                check_map(gym.registry.get(env), kwargs)  # options that cannot be, before they are used
                created = gym.make(env, **kwargs)
            except (gym.error.Error, ModuleNotFoundError) as error:
                raise unknown_env("env", env, error) from error
            try:
                check_map(created.unwrapped.spec, {})  # of names without a version, or with a module
                return cls.of(created)
            finally:
                created.close()
        _check_wrappers(env)
        world: Any = getattr(env, "unwrapped", env)
        if not hasattr(world, "P") or not hasattr(world, "initial_state_distrib"):
            raise ConfigError(f"{env} has no transition table: it needs the attributes `P` and `initial_state_distrib`")
        if getattr(world, "fickle_passenger", False):
            raise ConfigError(f"{env} does not step by its table `P` with fickle_passenger=True; leave that out")
        try:
            states = [world.P[state] for state in range(len(world.P))]
            outcomes = [[list(actions[action]) for action in range(len(actions))] for actions in states]
        except (KeyError, IndexError) as error:
            raise ConfigError(
                f"{env}'s table `P` must have all states and actions from 0 on, but lacks {error}"
            ) from error
        if len(counts := {len(row) for row in outcomes}) != 1:
            raise ConfigError(f"{env}'s table `P` must have as many actions in each state, but has {sorted(counts)}")
        ends = [[branches or [(1.0, state, 0.0, True)] for branches in row] for state, row in enumerate(outcomes)]
        most = max(len(branches) for row in ends for branches in row)
        padded = [[branches + [(0.0, 0, 0.0, False)] * (most - len(branches)) for branches in row] for row in ends]
        columns = np.moveaxis(np.array(padded, dtype=np.float64), -1, 0)
        start = np.asarray(world.initial_state_distrib, dtype=np.float64)
        return cls(columns[0], columns[1].astype(np.int64), columns[2], columns[3].astype(np.bool_), start)


def unknown_env(argument: str, env_id: str, reason: object) -> ConfigError:
    """Return the error for a name of which Gymnasium makes no environment, with the form for custom ones."""
    module, colon, name = env_id.rpartition(":")
    if not colon:
        fix = f'Name a custom environment "module:{name}", after the module that registers it.'
    elif isinstance(reason, ModuleNotFoundError) and reason.name == module:
        fix = f"Run this where {module.replace('.', '/')}.py is, or install it."
    else:
        fix = f"The module {module} must register it by gymnasium.register."
    text = str(reason)
    end = "" if text.endswith((".", "?")) else "."
    return ConfigError(f"`{argument}` must name a Gymnasium environment, but got {env_id!r}: {text}{end} {fix}")


def check_map(spec: gym.envs.registration.EnvSpec | None, options: Mapping[str, Any]) -> None:
    """Raise if a FrozenLake would draw its map on creation: no seed controls it, so each copy would have another.

    Args:
        spec: Spec of a registered or existing environment.
        options: Further arguments of the constructor, besides those of `spec`.

    Raises:
        ConfigError: It is one.
    """
    if spec is None or spec.entry_point != FROZEN_LAKE:
        return
    settings = {"desc": None, "map_name": "4x4"} | spec.kwargs | dict(options)
    if settings["desc"] is None and settings["map_name"] is None:
        raise ConfigError(
            f"`desc` of {spec.id} must be a map where `map_name` is None, but got None: every copy would draw another "
            "map, which no seed controls; give one, such as "
            "desc=gymnasium.envs.toy_text.frozen_lake.generate_random_map(seed=0)"
        )
    if settings["desc"] is None and settings["map_name"] not in MAPS:
        raise ConfigError(
            f"`map_name` of {spec.id} must be one of {', '.join(MAPS)}, but got {shown(settings['map_name'])}; or give "
            "a custom map as `desc`"
        )
    if "success_rate" in settings:
        checked("success_rate", settings["success_rate"], FRACTION)


def _check_wrappers(env: Any) -> None:
    """Raise if a wrapper may change transitions or rewards."""
    while isinstance(env, gym.Wrapper):
        if not isinstance(env, _HARMLESS) and not getattr(type(env), "keeps_table", False):
            raise ConfigError(
                f"{env} may not step by its table `P` in the wrapper {type(env).__name__}; leave that out, or, "
                "if it changes neither steps nor mean rewards, give its class the attribute `keeps_table = True`"
            )
        env = env.env


_HARMLESS = (
    gym.ObservationWrapper,
    *(gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker),
    *(gym.wrappers.RecordEpisodeStatistics, gym.wrappers.RecordVideo, gym.wrappers.RenderCollection),
    gym.wrappers.HumanRendering,
)
"""Wrappers that leave steps, rewards and ends as the table has them, except for a time limit."""


class TableVectorEnv(BatchedEnv):
    """A vector environment that steps by a transition table.

    Copy i draws what Gymnasium's toy-text environments draw, one number for each step and each start of an episode, so
    it equals the single environment of the same seed step for step, where outcomes are random, too. Observations are
    states, int64 (E,). Unlike Gymnasium's, the infos hold no probabilities and no action masks.

    Args:
        table: The outcomes.
        num_envs: E, the number of copies.
        max_episode_steps: Time limit of episodes; None: no limit.
        autoreset_mode: See `BatchedEnv`.

    Example:
        >>> env = TableVectorEnv(TransitionTable.of("FrozenLake-v1", is_slippery=False), 2)
        >>> env.reset(seed=[1, 2])[0]
        array([0, 0])
        >>> env.step(np.array([1, 2]))[0]
        array([4, 1])
    """

    @takes(table=instance(TransitionTable, "a TransitionTable"))
    def __init__(
        self,
        table: TransitionTable,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        states, actions, most = table.probability.shape
        spaces_of_one = spaces.Discrete(states), spaces.Discrete(actions)
        super().__init__(num_envs, *spaces_of_one, ((), np.int64), max_episode_steps, autoreset_mode)
        self.table = table
        rows = (states * actions, most)
        self._cumulative = table.probability.cumsum(2).reshape(rows)
        self._next_state = table.next_state.reshape(rows)
        self._reward = table.reward.reshape(rows).astype(np.float32)
        self._terminated = table.terminated.reshape(rows)
        self._start_cumulative = table.start.cumsum()

    def _start(self, generator: np.random.Generator, options: dict[str, Any]) -> Any:  # noqa: ARG002
        return (self._start_cumulative > generator.random()).argmax()

    def _advance(self, action: npt.NDArray[np.intp]) -> tuple[Floats, Bools]:
        row = self._variables * self.single_action_space.n + action
        ended = self._ended.tolist()  # these only start an episode now, and draw for that
        draw = [0.0 if over else g.random() for g, over in zip(self._generators, ended, strict=True)]
        outcome = (self._cumulative[row] > np.array(draw)[:, None]).argmax(1)
        self._variables[:] = self._next_state[row, outcome]
        return self._reward[row, outcome], self._terminated[row, outcome]


class ToyText:
    """Constructor of the vector environment of a Gymnasium class that has a table.

    Args:
        entry_point: The class, as "module:name".
    """

    def __init__(self, entry_point: str) -> None:
        self._entry_point = entry_point

    def __call__(
        self,
        num_envs: int,
        autoreset_mode: str | AutoresetMode,
        max_episode_steps: int | None = None,
        **kwargs: Any,
    ) -> TableVectorEnv:
        """Return it; `kwargs` are the class's own."""
        env: Any = load_env_creator(self._entry_point)(**kwargs)
        try:
            table = TransitionTable.of(env)
        finally:
            env.close()
        return TableVectorEnv(table, num_envs, max_episode_steps=max_episode_steps, autoreset_mode=autoreset_mode)
