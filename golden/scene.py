"""Random buffers, and environments that fill them: the scene of the values ``worlds/*``.

The scene is frozen: a change of this file changes its values in every commit, the base included.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from replaylab import ReplayError
from replaylab.replay import (
    CustomSampler,
    EpisodeEnds,
    Field,
    FrameStack,
    Hindsight,
    NStep,
    Prioritized,
    RankBased,
    ReplayBuffer,
    Sequence,
    Uniform,
)

OBS = {
    "observation": Field((2,), np.uint8),
    "achieved_goal": Field((2,)),
    "desired_goal": Field((2,)),
    "joints": (Field((2,), np.float64), Field((), bool)),
}
STEP = {
    "action": Field((), np.int64),
    "reward": Field(),
    "tag": Field((), np.int64),
    "memory": {"hidden": Field((3,))},
    "next_mask": Field((2,), np.int16),
    "late": {"tag": Field((), np.int32), "camera": Field((2,), np.uint8)},
}
FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}


def compute_reward(achieved, desired, info):
    """Return a reward that depends on the goal and on other columns."""
    tags = info["tag"] % 3 if "tag" in info else 0
    return 8.0 * (achieved == desired).all(-1) - 0.5 * info["reward"] + tags


def compute_terminated(achieved, desired, info):
    """Return whether a goal is near enough, as about every third is."""
    return (achieved[:, 0] - desired[:, 0]) % 3 == 0


@dataclass(frozen=True)
class ByCount(CustomSampler):
    """Steps that were seldom replayed, more often."""

    def distribution(self, view, batch_size):
        """Return the chance of every step, (N,)."""
        wanted = 1.0 / (1.0 + view.replay_counts)
        return wanted / wanted.sum()


class Environment:
    """An environment of random episodes; with a `FrameStack` of stacked input, it stacks its frames."""

    def __init__(self, rng: np.random.Generator, longest: int, autoreset: str | None, stack: FrameStack | None) -> None:
        self.rng, self.longest, self.autoreset, self.stack, self.time = rng, longest, autoreset, stack, 0
        self.start()

    def start(self) -> None:
        """Begin an episode."""
        self.left, self.resetting = int(self.rng.integers(1, self.longest + 1)), False
        self.goal = self.rng.integers(0, 5, 2)
        self.obs = self.observe(None)

    def observe(self, previous: dict[str, Any] | None) -> dict[str, Any]:
        """Return the observation after a previous one; few bytes, so that neighbors are often equal."""
        bits = self.rng.integers(0, 2, 5)
        frame = bits[:2]
        if self.stack and self.stack.stacked_input:
            first = np.broadcast_to(frame * (self.stack.padding == "repeat"), (self.stack.length, 2))
            frame = np.concatenate([(previous["observation"] if previous else first)[1:], frame[None]])
        return {
            "observation": frame,
            "achieved_goal": self.rng.integers(0, 5, 2),
            "desired_goal": self.goal,
            "joints": (bits[2:4], bool(bits[4])),
        }

    def record(self, obs: dict, next_obs: dict, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
        """Return a step."""
        self.time += 1
        return {
            "obs": obs,
            "next_obs": next_obs,
            "action": self.rng.integers(3),
            "reward": self.rng.integers(-4, 4),
            "terminated": terminated,
            "truncated": truncated,
            "tag": self.time,
            "memory": {"hidden": [self.time % 16, 1, 2]},
            "next_mask": [self.time % 999, 3],
            "late": {"tag": self.time, "camera": self.rng.integers(0, 2, 2)},
        }

    def step(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Take a step; return it as the environment reports it, and its true next observation."""
        obs = self.obs
        if self.resetting:
            self.start()
            return self.record(obs, self.obs), self.obs
        following = self.observe(obs)
        self.left -= 1
        if self.left:  # sometimes an episode continues elsewhere
            self.obs = self.observe(None) if self.rng.random() < 0.05 else following
            return self.record(obs, following), following
        ends = [(True, False), (False, True), (True, True)][self.rng.integers(3)]
        if self.autoreset == "next_step":
            self.resetting, self.obs = True, following
        else:
            self.start()
        return self.record(obs, self.obs if self.autoreset == "same_step" else following, *ends), following


class World:
    """A buffer of random options, and its environments."""

    def __init__(self, rng: np.random.Generator) -> None:
        def any_of(*options: Any) -> Any:
            return options[rng.integers(len(options))]

        self.rng, self.batches = rng, []
        self.replicas, self.envs = any_of(None, 3), any_of(None, 1, 4)
        autoreset = self.autoreset = any_of(None, "disabled", "next_step", "same_step")
        n_step = any_of(NStep(3, 0.5, ("late",)), NStep(6, 1.0, ("late.camera", "action")), None, None)
        stack = any_of(
            FrameStack(any_of(2, 3, 4), ("obs.observation",), any_of("repeat", "zero"), any_of(False, True)), None
        )
        strategy, ratio = any_of("future", "final", "episode"), any_of(1.0, 4.0)
        goals = any_of(Hindsight(compute_reward, compute_terminated, strategy, ratio), None)
        lengths = any_of((4, 2, 1), (3, 0, 0), (12, 3, 0), (80, 40, 40))
        sequences = any_of(Sequence(*lengths, any_of((), ("memory",))), None)
        transforms = [transform for transform in (n_step, stack, goals, sequences) if transform]
        endless = not (n_step or goals or autoreset) and rng.random() < 0.5
        self.fields = {"obs": OBS, "next_obs": OBS} | STEP | ({} if endless else FLAGS)
        self.buffer = ReplayBuffer(
            max(any_of(1, 2, 5, 64, 1000), self.envs or 1),
            self.fields,
            num_envs=self.envs,
            replicas=self.replicas,
            sampler=any_of(
                Uniform(), Prioritized(beta=0.5), RankBased(beta=0.5), EpisodeEnds(0.6, 2, truncated=True), ByCount()
            ),
            transforms=[transforms[i] for i in rng.permutation(len(transforms))],
            autoreset=autoreset,
            next_obs=any_of("stored", "derived"),
            episodes="manual" if endless else "flags",
            seed=int(rng.integers(2**32)),
        )
        longest, lead = any_of(1, 6, 90), (self.replicas or 1, self.envs or 1)
        self.environments = [
            [Environment(rng, longest, autoreset, stack) for _ in range(lead[1])] for _ in range(lead[0])
        ]

    def lead(self, *time: int) -> tuple[int, ...]:
        """Return the leading shape of a call of so many steps."""
        return tuple(n for n in (self.replicas, *time, self.envs) if n is not None)

    def extend(self, count: int, masked: bool) -> None:
        """Let every environment take steps; of masked ones, some are to be left out."""
        lead, rows, final = self.lead(count), [], []
        where = self.rng.random(lead) < (0.6 if masked else 2)
        taken = iter(where.flat)
        for replica in self.environments:
            for env in (env for _ in range(count) for env in replica):
                step, last = env.step() if next(taken) else (env.record(*2 * (env.observe(None),)), env.obs)
                rows.append({name: step[name] for name in self.fields})
                final.append(last)
        options = {"where": where} if masked else {}
        options |= {"final_obs": stacked(final, lead)} if self.autoreset == "same_step" else {}
        self.buffer.extend(**stacked(rows, lead), **options)

    def end_episodes(self) -> None:
        """Reset some environments."""
        where = self.rng.random(self.lead()) < 0.5
        for env, ended in zip((env for replica in self.environments for env in replica), where.flat, strict=True):
            if ended:
                env.start()
        self.buffer.end_episode(where if where.ndim else bool(where))

    def feed_back(self) -> None:
        """Give priorities or TD errors to rows of an earlier batch."""
        sampler = self.buffer.sampler
        if self.batches and sampler.wants_feedback:
            ids = self.batches[self.rng.integers(len(self.batches))]
            ids = np.where(self.rng.random(ids.shape) < 0.1, -1, ids)
            name = "priority" if sampler.takes_priorities else "td_error"
            self.buffer.update_priorities(ids, **{name: self.rng.choice([0.25, 1.0, 3.5, 64.0], ids.shape)})


def stacked(trees: list, lead: tuple[int, ...]) -> Any:
    """Return equal trees of values as a tree of arrays of a leading shape."""
    if isinstance(trees[0], dict):
        return {name: stacked([tree[name] for tree in trees], lead) for name in trees[0]}
    if isinstance(trees[0], tuple):
        return tuple(stacked(list(leaves), lead) for leaves in zip(*trees, strict=True))
    return np.array(trees).reshape(lead + np.shape(trees[0]))


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over the arrays of a nested batch by path."""
    if isinstance(tree, tuple):
        tree = dict(enumerate(tree))
    if hasattr(tree, "items"):
        for name, child in tree.items():
            yield from leaves(child, f"{path}.{name}")
    else:
        yield path, np.ascontiguousarray(tree)


def add_batch(digest: "hashlib._Hash", batch: Any) -> None:
    """Add every column of a batch to a checksum."""
    for path, column in sorted(leaves(dict(batch))):
        digest.update(f"{path} {column.dtype} {column.shape}".encode() + column.tobytes())


def drawn(world: World, calls: int) -> str:
    """Return a checksum of what a world's buffer draws in so many calls."""
    digest, rng = hashlib.sha256(), world.rng
    for _ in range(calls):
        world.extend(int(rng.integers(1, 9)), masked=bool(rng.random() < 0.3))
        if rng.random() < 0.2:
            world.end_episodes()
        try:
            batch = world.buffer.sample(4, progress=0.5)
        except ReplayError as error:
            digest.update(type(error).__name__.encode())
            continue
        add_batch(digest, batch)
        world.batches.append(batch.id)
        world.feed_back()
    return digest.hexdigest()
