"""Hindsight: goals from the future of the drawn step's episode, four relabelled rows to one that is not."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import wrapped
from benchmarks.limit import TRANSFORMS
from benchmarks.ours import ReplaylabDrawer, derived, fields_of
from benchmarks.scene import Columns, Drawer, Scene, Work
from benchmarks.timing import time_block
from replaylab import Field, ReplayBuffer
from replaylab.replay import Hindsight

BATCH, CALLS = Drawer.batch, 50
EPISODE = 50
OBS, GOAL, ACTION = 25, 3, 4
ADDITIONAL = 4
TABLE = 60_000
UNREACHED = -0.5  # the first coordinate of every goal that was pursued

Steps = NDArray[np.int64]


def compute_reward(achieved: NDArray[np.float32], desired: NDArray[np.float32], info: Any) -> NDArray[np.float32]:
    """Return 0 where the goal is reached and −1 elsewhere, as Fetch environments do."""
    del info
    gap = achieved - desired
    return -(np.einsum("ij,ij->i", gap, gap) > 0.05**2).astype(np.float32)


def compute_terminated(achieved: NDArray[np.float32], desired: NDArray[np.float32], info: Any) -> NDArray[np.bool_]:
    """Return False: Fetch environments continue until they are cut off."""
    del desired, info
    return np.zeros(len(achieved), np.bool_)


def time_reward(seed: tuple[int, ...]) -> float:
    """Time the reward function alone, for as many goals as a batch relabels."""
    rows = BATCH * ADDITIONAL // (ADDITIONAL + 1)
    goals = np.random.default_rng(seed).standard_normal((CALLS, 2, rows, GOAL), dtype=np.float32)

    def run(inputs: list[Any]) -> None:
        for achieved, desired in inputs:
            compute_reward(achieved, desired, None)

    return time_block(run, list(goals))


class Reacher:
    """Steps of a GoalEnv (Fetch's shapes) without end, in episodes of 50 that are truncated.

    The goal achieved before step i begins with i, so that a goal tells which step it was taken from; the one
    achieved at an episode's end begins with −(i + 1).
    """

    @classmethod
    @cache
    def shared(cls) -> "Reacher":
        """Return the one that every contestant gets, so that it counts as nobody's memory."""
        return cls(0)

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._obs = rng.standard_normal((TABLE, OBS), dtype=np.float32)
        self._goal = rng.standard_normal((TABLE, GOAL), dtype=np.float32)
        self._action = rng.uniform(-1, 1, (TABLE, ACTION)).astype(np.float32)

    def obs(self, i: Steps) -> Columns:
        """Return the Dict observations of steps i."""
        goal = self._goal[i // EPISODE % TABLE]
        goal[:, 0] = UNREACHED
        return {"observation": self._obs[i % TABLE], "achieved_goal": self._achieved(i), "desired_goal": goal}

    def next_obs(self, i: Steps) -> Columns:
        """Return what followed steps i, under the same goals."""
        achieved = self._achieved(i + 1)
        achieved[:, 0] *= np.where(self.ended(i), -1, 1)
        goal = self.obs(i)["desired_goal"]
        return {"observation": self._obs[(i + 1) % TABLE], "achieved_goal": achieved, "desired_goal": goal}

    def action(self, i: Steps) -> NDArray[np.float32]:
        """Return the actions of steps i."""
        return self._action[i % TABLE]

    @staticmethod
    def ended(i: Steps) -> NDArray[np.bool_]:
        """Say which of steps i were their episode's last; all were truncations."""
        return i % EPISODE == EPISODE - 1

    def _achieved(self, i: Steps) -> NDArray[np.float32]:
        goal = self._goal[i % TABLE]
        goal[:, 0] = i
        return goal


class HindsightDrawer(Drawer):
    """Expected rows of every library: obs, next_obs (dicts), action and reward."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.world = Reacher.shared()

    def fill(self) -> None:
        while self.added < wrapped(self.capacity):
            self.store(self.prepare_store(10))

    def prepare_store(self, calls: int) -> list[Any]:
        first = self.added
        self.added += calls * EPISODE
        return [self.episode(np.arange(i, i + EPISODE)) for i in range(first, self.added, EPISODE)]

    @abstractmethod
    def episode(self, i: Steps) -> Any:
        """Return the episode of steps i in the form that the library stores."""

    def verify(self) -> None:
        share = []
        for _ in range(20):
            batch = self.fetch()
            obs, next_obs = batch["obs"], batch["next_obs"]
            i = np.rint(obs["achieved_goal"][:, 0]).astype(np.int64)
            obs_was, next_was = self.world.obs(i), self.world.next_obs(i)
            for name in ("observation", "achieved_goal"):
                self.expect(name, obs[name], obs_was[name])
                self.expect(f"next {name}", next_obs[name], next_was[name])
            self.expect("action", batch["action"], self.world.action(i))
            new = obs["desired_goal"][:, 0] != UNREACHED
            source = np.abs(np.rint(obs["desired_goal"][:, 0]).astype(np.int64)) - 1  # the step that achieved it
            goal = np.where(new[:, None], self.world.next_obs(source)["achieved_goal"], obs_was["desired_goal"])
            self.expect("desired goal", obs["desired_goal"], goal)
            self.expect("next desired goal", next_obs["desired_goal"], goal)
            future = (source >= i) & (source // EPISODE == i // EPISODE)
            self.expect("goal, not of the future", future[new], np.ones(new.sum(), bool))
            self.expect("reward", batch["reward"], compute_reward(next_was["achieved_goal"], goal, None))
            share.append(new.mean())
        if not 0.76 < np.mean(share) < 0.84:  # 0.8; 5,120 rows: a false alarm in 1e12
            raise RuntimeError(f"{self.label} relabelled {np.mean(share):.3f} of the rows instead of 0.8")


class Replaylab(ReplaylabDrawer, HindsightDrawer):
    """This library: `Hindsight` relabels as it draws, reward and `terminated`."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        goals = {name: Field((GOAL,)) for name in ("achieved_goal", "desired_goal")}
        fields = fields_of({"observation": Field((OBS,)), **goals}, Field((ACTION,)))
        transform = Hindsight(compute_reward, compute_terminated, strategy="future", ratio=ADDITIONAL)
        self.buffer = ReplayBuffer(capacity, fields, transforms=(transform,), seed=1, **self.options)

    def episode(self, i: Steps) -> Any:
        return {
            "obs": self.world.obs(i),
            "action": self.world.action(i),
            "reward": np.full(EPISODE, -1, np.float32),
            "next_obs": self.world.next_obs(i),
            "terminated": np.zeros(EPISODE, bool),
            "truncated": self.world.ended(i),
        }

    def store(self, inputs: list[Any]) -> None:
        for episode in inputs:
            self.buffer.extend(**episode)


class Goals:
    """The part of a vector environment that `HerReplayBuffer` asks for."""

    def env_method(self, name: str, *arguments: Any, indices: Any) -> list[NDArray[np.float32]]:
        """Compute the reward."""
        del name, indices
        return [compute_reward(*arguments)]


class StableBaselines3(HindsightDrawer):
    """Stable-Baselines3's `HerReplayBuffer`: relabels as it draws; unfinished episodes are never drawn."""

    package: ClassVar[str] = "stable-baselines3"
    label: ClassVar[str] = "SB3"

    def __init__(self, capacity: int) -> None:
        from gymnasium.spaces import Box, Dict
        from stable_baselines3 import HerReplayBuffer

        super().__init__(capacity)
        shapes = {"observation": OBS, "achieved_goal": GOAL, "desired_goal": GOAL}
        space = Dict({name: Box(-np.inf, np.inf, (size,), np.float32) for name, size in shapes.items()})
        action = Box(-1.0, 1.0, (ACTION,), np.float32)
        goals: Any = Goals()
        self.buffer = HerReplayBuffer(capacity, space, action, goals, device="cpu", n_sampled_goal=ADDITIONAL)

    def episode(self, i: Steps) -> Any:
        minus, infos = np.array([-1], np.float32), ([{}], [{"TimeLimit.truncated": True}])
        obs, next_obs, action = self.world.obs(i), self.world.next_obs(i), self.world.action(i)
        steps = []
        for t in range(EPISODE):
            last, row = t == EPISODE - 1, slice(t, t + 1)
            before, after = ({name: column[row] for name, column in side.items()} for side in (obs, next_obs))
            steps.append((before, after, action[row], minus, np.array([last]), infos[last]))
        return steps

    def store(self, inputs: list[Any]) -> None:
        add = self.buffer.add
        for episode in inputs:
            for step in episode:
                add(*step)

    def fetch(self) -> dict[str, Any]:
        batch = self.buffer.sample(BATCH)
        return {
            "obs": _numpy(batch.observations),
            "next_obs": _numpy(batch.next_observations),
            "action": batch.actions.numpy(),
            "reward": batch.rewards.numpy()[:, 0],
        }


class Rlox(HindsightDrawer):
    """rlox's `HERBuffer`: relabels as it draws, by its own reward that has a tolerance only."""

    package: ClassVar[str] = "rlox"
    label: ClassVar[str] = "rlox"

    def __init__(self, capacity: int) -> None:
        import rlox

        super().__init__(capacity)
        width = OBS + 2 * GOAL
        self.buffer = rlox.HERBuffer(capacity, width, ACTION, GOAL, OBS, OBS + GOAL, "future", ADDITIONAL, 0.05)

    def episode(self, i: Steps) -> Any:
        obs, next_obs = _flat(self.world.obs(i)), _flat(self.world.next_obs(i))
        rewards, never, ends = [-1.0] * EPISODE, [False] * EPISODE, self.world.ended(i).tolist()
        return list(zip(obs, next_obs, self.world.action(i), rewards, never, ends, strict=True))

    def store(self, inputs: list[Any]) -> None:
        push = self.buffer.push
        for episode in inputs:
            for obs, next_obs, action, reward, terminated, truncated in episode:
                push(obs, next_obs, action, reward, terminated, truncated)

    def fetch(self) -> dict[str, Any]:
        batch = self.buffer.sample(BATCH, 0.8, next(self.seeds))
        return {
            "obs": _split(batch["obs"]),
            "next_obs": _split(batch["next_obs"]),
            "action": batch["actions"],
            "reward": batch["rewards"],
        }

    def draw(self, batch: int, inputs: list[Any]) -> None:
        sample = self.buffer.sample
        for seed in inputs:
            drawn = sample(batch, 0.8, seed)
        del drawn


class Cpprb(HindsightDrawer):
    """cpprb's `HindsightReplayBuffer`: stores every step five times, under five goals; a draw is a plain one.

    Its ring has five rows for a step, so that it holds the same steps.
    """

    package: ClassVar[str] = "cpprb"
    label: ClassVar[str] = "cpprb (at add)"

    def __init__(self, capacity: int) -> None:
        import cpprb

        super().__init__(capacity)
        fields = {"obs": {"shape": OBS + GOAL}, "act": {"shape": ACTION}, "next_obs": {"shape": OBS + GOAL}, "done": {}}
        self.buffer = cpprb.HindsightReplayBuffer(
            capacity * (ADDITIONAL + 1),
            fields,
            EPISODE,
            lambda state, action, goal: compute_reward(state[:, OBS:], goal, action),
            goal_func=lambda state: state[:, OBS:],
            goal_shape=GOAL,
            additional_goals=ADDITIONAL,
            prioritized=False,
        )

    def episode(self, i: Steps) -> Any:
        obs = self.world.obs(i)
        steps = {
            "obs": _flat(obs)[:, : OBS + GOAL].copy(),
            "act": self.world.action(i),
            "next_obs": _flat(self.world.next_obs(i))[:, : OBS + GOAL].copy(),
            "done": np.zeros((EPISODE, 1), np.float32),
        }
        return steps, obs["desired_goal"][0]

    def store(self, inputs: list[Any]) -> None:
        buffer = self.buffer
        for episode, goal in inputs:
            buffer.add(**episode)
            buffer.on_episode_end(goal)

    def fetch(self) -> dict[str, Any]:
        batch = self.buffer.sample(BATCH)
        obs, next_obs = (_split(np.hstack([batch[name], batch["goal"]])) for name in ("obs", "next_obs"))
        return {"obs": obs, "next_obs": next_obs, "action": batch["act"], "reward": batch["rew"][:, 0]}


def _flat(obs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.hstack([obs["observation"], obs["achieved_goal"], obs["desired_goal"]])


def _split(flat: NDArray[np.float32]) -> Columns:
    parts = np.split(flat, [OBS, OBS + GOAL], axis=1)
    return dict(zip(("observation", "achieved_goal", "desired_goal"), parts, strict=True))


def _numpy(tensors: Mapping[str, Any]) -> Columns:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


SCENE = Scene(
    "hindsight",
    (
        Work("hindsight sample(256), future, k = 4", BATCH, CALLS, "hindsight_256", time_reward),
        Work("hindsight, store an episode of 50", 0, 20),
    ),
    (Replaylab, derived(Replaylab), StableBaselines3, Rlox, Cpprb),
    share=0.25,
    limit=TRANSFORMS,
)
