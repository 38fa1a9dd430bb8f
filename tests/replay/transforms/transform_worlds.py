"""Scripted environments whose steps say who they are, in a buffer with any transforms or none, and in its oracle.

Every step has its own `tag`, and every observation its own achieved goal, so a row tells what it was made from.
Images are of few different bytes, so that an observation often equals another by chance.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from replaylab.episode_ends import ENDS
from replaylab.errors import EmptyBufferError, PriorityError
from replaylab.replay import (
    Aged,
    Combined,
    CustomSampler,
    EpisodeEnds,
    Field,
    FrameStack,
    FreshFirst,
    Hindsight,
    Linear,
    NStep,
    Online,
    Prioritized,
    Queue,
    RankBased,
    ReplayBuffer,
    Sequence,
    SlidingWindow,
    Uniform,
)
from tests.given import priorities_or_errors
from tests.oracle import OracleBuffer, TransformOracle, flatten, unflatten
from tests.oracle.transforms import under

STEP = {
    "action": Field((), np.int64),
    "reward": Field(),
    "terminated": Field((), np.bool_),
    "truncated": Field((), np.bool_),
    "tag": Field((), np.int64),
    "memory": {"hidden": Field((3,))},
    "next_mask": Field((2,), np.int16),
    "late": {"tag": Field((), np.int32), "camera": Field((2,), np.uint8)},
}
GOAL = {"observation": Field((2,), np.uint8), "achieved_goal": Field((2,)), "desired_goal": Field((2,))}
IMAGES = {"camera": Field((2, 2), np.uint8), "joints": (Field((2,), np.float64), Field((), np.bool_))}
WITHOUT_ENDS = {name: field for name, field in STEP.items() if name not in ("terminated", "truncated")}

FIELDS = {
    "goal": {
        "obs": GOAL,
        "next_obs": GOAL,
        **STEP,
        "true": {"achieved": Field((), np.int32), "desired": Field((), np.int32)},
    },
    "goal, never truncated": {"obs": GOAL, "next_obs": GOAL, **WITHOUT_ENDS, "terminated": Field((), np.bool_)},
    "flat": {"obs": Field((2,), np.uint8), "next_obs": Field((2,), np.uint8), **STEP},
    "images": {"obs": IMAGES, **STEP, "next_obs": IMAGES},
    "endless": {"obs": Field((2,), np.uint8), **WITHOUT_ENDS, "next_obs": Field((2,), np.uint8)},
}


def bits(array):
    """Bytes of an array, so that NaNs compare too."""
    return np.ascontiguousarray(array).tobytes()


def compute_reward(achieved, desired, info):
    """A reward that needs everything it is given."""
    assert achieved.shape == desired.shape == (len(info["tag"]), 2)
    hit = (achieved == desired).all(axis=-1)
    return 8.0 * hit + info["action"] + info["tag"] % 3 - 0.5 * info["reward"] + 0.25 * info["memory.hidden"][:, 0]


def compute_reward_from_outcome(achieved, desired, info):
    """The same where info does not hold every field."""
    assert achieved.shape == desired.shape == (len(info["reward"]), 2)
    return 8.0 * (achieved == desired).all(axis=-1) - 0.5 * info["reward"] + achieved[:, 0] % 5


def compute_terminated(achieved, desired, info):
    """Whether a goal is near enough: every third step or so."""
    assert achieved.shape == desired.shape == (len(info["reward"]), 2)
    return (achieved[:, 0] - desired[:, 0]) % 3 == 0


@dataclass(frozen=True)
class ByAge(CustomSampler):
    """Every third step more often, and every fourth never."""

    def distribution(self, view, batch_size):
        wanted = 1.0 + (view.ids % 3 == 0) - (view.ids % 4 == 1) * (len(view.ids) > 1)
        wanted[-1] = 1.0
        return wanted / wanted.sum()


SAMPLERS = (
    *(Uniform(), Prioritized(beta=0.5), RankBased(beta=0.5), ByAge()),
    EpisodeEnds(share=0.6, steps=2, truncated=True),
    Aged(Prioritized(beta=0.5), half_life=50.0, window=300),
)
PLAIN_SAMPLERS = (
    Online(),
    SlidingWindow(),
    Uniform(),
    Combined(),
    Combined(mode="replace"),
    Combined(mode="replace", distinct=True),
    EpisodeEnds(share=0.3),
    Prioritized(),
    Prioritized(alpha=1.0, beta=1.0, normalize="batch"),
    Prioritized(alpha=0.5, beta=Linear(0.2, 0.9, until=0.5), epsilon=0.01, normalize="none"),
    Aged(Uniform(), half_life=7.0, floor=0.25),
    Aged(Uniform(stratified=True), half_life=60.0, clock="tag"),
    Aged(Prioritized(beta=0.5), half_life=40.0, clock="tag"),
    Aged(Prioritized(beta=0.5, stratified=False), half_life=2.0, floor=0.1, window=11),
    Aged(Prioritized(alpha=1.0, beta=0.7, normalize="batch"), window=4),
    Aged(Prioritized(beta=0.5, normalize="none", new_steps="largest_ever"), half_life=9.0, floor=0.5),
    FreshFirst(Prioritized(beta=0.5)),
    FreshFirst(Aged(Prioritized(beta=0.5), half_life=7.0)),
)
"""Of buffers without transforms."""
CAPACITIES = (1, 2, 5, 64, 1000)
MAGNITUDES = np.array([0.0, 1e-30, 1e-6, 1.0, 3.5, 1e6, 1e30])
N_STEPS = (
    NStep(3, 0.5, last=("late",)),
    NStep(2, 0.9),
    NStep(6, 1.0, last=("late.camera", "action")),
    NStep(1, 0.9, last=("late.tag",)),
)
SEQUENCES = ((4, 2, 1), (3, 0, 0), (5, 4, 3), (1, 0, 2), (12, 3, 0), (80, 40, 40))  # length, overlap, burn-in
LENGTHS = ((1, 1), (1, 6), (2, 90))  # of episodes


COMBINATIONS = list(
    product(  # n-step, padding of frame stacks, hindsight strategy, sequences
        (False, True), (None, "repeat", "zero"), (None, "future", "final", "episode"), (False, True)
    )
)


def make_transforms(rng, n_step, padding, strategy, sequence, stacked_input=False):
    """Transforms of random numbers in random order."""
    transforms = []
    if n_step:
        transforms.append(N_STEPS[rng.integers(len(N_STEPS))])
    if padding:
        fields = ("obs.observation",) if strategy else ("obs",)
        fields += ("late.camera", "next_mask") if rng.random() < 0.5 and not stacked_input else ()
        length = int(rng.integers(2, 5))
        transforms.append(FrameStack(length, fields, padding=padding, stacked_input=stacked_input))
    state = ("memory",) if rng.random() < 0.5 else ()
    if strategy:
        ratio = float(rng.choice([4.0, 1.0, 99.0]))
        reward = compute_reward_from_outcome if n_step or (sequence and state) else compute_reward
        transforms.append(Hindsight(reward, compute_terminated, strategy, ratio))
    if sequence:
        length, overlap, burn_in = SEQUENCES[rng.integers(len(SEQUENCES))]
        transforms.append(Sequence(length, overlap, burn_in, state=state))
    return [transforms[i] for i in rng.permutation(len(transforms))]


def fields_for(rng, transforms, autoreset):
    """A name in `FIELDS` that allows these transforms."""
    kinds = {type(transform) for transform in transforms}
    free = autoreset is None and NStep not in kinds
    if Hindsight in kinds:
        return "goal"
    return rng.choice(["flat", "images", "endless"]) if free else rng.choice(["flat", "images"])


class Script:
    """One environment: what it shows step by step.

    Args:
        lengths: of its episodes, the least and the most.
        counter: an iterator of numbers that no other environment gets.
    """

    def __init__(self, fields, rng, lengths, autoreset, counter):
        self.fields, self.rng, self.lengths, self.autoreset, self.counter = fields, rng, lengths, autoreset, counter
        self.leaves = flatten(fields["obs"])
        self.start()

    def start(self):
        self.resetting = False
        self.left = int(self.rng.integers(self.lengths[0], self.lengths[1] + 1))
        self.desired = -next(self.counter)
        self.obs = self.observe()

    def observe(self):
        """Make an observation its own achieved goal, by path below `obs`."""
        n = next(self.counter)
        leaves = {}
        for path, field in self.leaves.items():
            if path in (("achieved_goal",), ("desired_goal",)):
                leaves[path] = np.array([n, n % 7] if path == ("achieved_goal",) else [self.desired, 1], np.float32)
            else:
                leaves[path] = self.rng.integers(0, 2, field.shape).astype(field.dtype)
        return leaves

    def garbage(self):
        """Make a step that must not be stored."""
        return self.record(self.observe(), self.observe(), terminated=self.rng.random() < 0.5)

    def record(self, obs, next_obs, *, terminated=False, truncated=False):
        n = next(self.counter)
        values = {
            "action": self.rng.integers(0, 3),
            "reward": self.rng.integers(-4, 4),
            "terminated": terminated,
            "truncated": truncated,
            "tag": n,
        }
        step = {(name,): value for name, value in values.items() if name in self.fields}
        step |= {("memory", "hidden"): np.array([n % 16, 1, 2], np.float32), ("next_mask",): np.array([n % 999, 3])}
        step |= {("late", "tag"): n, ("late", "camera"): self.rng.integers(0, 2, 2)}
        step |= {("true", key): -n if key == "desired" else n for key in self.fields.get("true", ())}
        step |= {("obs", *path): leaf for path, leaf in obs.items()}
        return step | {("next_obs", *path): leaf for path, leaf in next_obs.items()}

    def step(self):
        """Take one step: the record as the environment gives it, and at an episode's end its true last observation."""
        if self.resetting:  # NEXT_STEP: what is returned is the reset, the action is ignored
            last = self.obs
            self.start()
            return self.record(last, self.obs), None
        obs, next_obs = self.obs, self.observe()
        self.left -= 1
        if self.left:
            # Now and then someone moves the environment without saying so: the episode continues from elsewhere.
            self.obs = self.observe() if self.rng.random() < 0.05 else next_obs
            return self.record(obs, next_obs), None
        terminated, truncated = [(True, False), (False, True), (True, True)][self.rng.integers(3)]
        ends = {"terminated": terminated, "truncated": truncated}
        if self.autoreset == "next_step":
            self.resetting, self.obs = True, next_obs
            return self.record(obs, next_obs, **ends), None
        self.start()
        return self.record(obs, self.obs if self.autoreset == "same_step" else next_obs, **ends), next_obs


class TransformWorld:
    """A buffer with transforms and its oracle, fed the same steps of scripted environments.

    Inside, arrays always have the axes R, T, E; `outward` drops those the buffer was not declared with.
    """

    def __init__(
        self,
        capacity,
        transforms,
        *,
        fields,
        num_envs=None,
        replicas=None,
        sampler=None,
        autoreset=None,
        next_obs="stored",
        lengths=(1, 6),
        seed=0,
    ):
        self.fields, self.num_envs, self.replicas = FIELDS[fields], num_envs, replicas
        self.sampler, self.transforms, self.next_obs = sampler or Uniform(), transforms, next_obs
        self.leaves = flatten(self.fields)
        options = {"num_envs": num_envs, "replicas": replicas, "sampler": self.sampler, "autoreset": autoreset}
        episodes = "flags" if "terminated" in self.fields else "manual"
        self.buffer = ReplayBuffer(
            capacity, self.fields, transforms=transforms, next_obs=next_obs, episodes=episodes, seed=seed, **options
        )
        self.oracle = OracleBuffer(capacity, derived=next_obs == "derived", **options)
        self.rows = [TransformOracle(replay, transforms) for replay in self.oracle.replay]
        self.rng = np.random.default_rng(seed)
        counter = iter(range(1, 2**24))
        self.scripts = {
            (r, e): Script(self.fields, self.rng, lengths, autoreset, counter)
            for r, e in product(range(self.R), range(self.E))
        }
        self.batches = {}  # batch size -> a batch, to be given as `out`

    @property
    def rtol(self):
        """Relative tolerance of probabilities: masses are rounded to float32, all else is float64."""
        if isinstance(self.sampler, Aged | FreshFirst):
            return 5e-7
        return 3e-7 if isinstance(self.sampler, Prioritized) else 1e-10

    @property
    def R(self):  # noqa: N802
        return self.replicas or 1

    @property
    def E(self):  # noqa: N802
        return self.num_envs or 1

    def outward(self, array, *, time):
        """Drop the axes R, T, E that the caller does not have."""
        keep = [self.replicas is not None, time, self.num_envs is not None]
        lead = tuple(n for n, is_kept in zip(array.shape[:3], keep, strict=True) if is_kept)
        return array.reshape(lead + array.shape[3:])

    def per_replica(self, array):
        """Give an array from the buffer its R axis."""
        return np.asarray(array) if self.replicas is not None else np.asarray(array)[None]

    def clear(self):
        """Drop everything."""
        self.buffer.clear()
        self.oracle.clear()

    def known_ids(self):
        """All ids ever given (R, n); shorter replicas are padded with -1."""
        counts = [len(replay.steps) for replay in self.oracle.replay]
        ids = np.arange(max(counts)) * np.ones((self.R, 1), np.int64)
        return np.where(ids < np.array(counts)[:, None], ids, -1)

    def drawable(self, batch_size):
        """Whether every replica can answer `sample(batch_size)`."""
        different = isinstance(self.sampler, SlidingWindow) or getattr(self.sampler, "distinct", False)
        least = self.sampler.rows(batch_size) if different else 1
        if any(len(replay.stored) < least for replay in self.oracle.replay):
            return False
        if isinstance(self.sampler, Queue) and any(len(replay.waiting()) < batch_size for replay in self.oracle.replay):
            return False
        return all(sum(replay.distribution(batch_size).values()) > 0.999 for replay in self.oracle.replay)

    @property
    def stack(self):
        return next((transform for transform in self.transforms if isinstance(transform, FrameStack)), None)

    @property
    def hindsight(self):
        return any(isinstance(transform, Hindsight) for transform in self.transforms)

    @property
    def sequence(self):
        return next((transform for transform in self.transforms if isinstance(transform, Sequence)), None)

    def give(self, T=None, *, masked=False):
        """Let every environment take steps, `add` when T is None, else `extend`; check the ids."""
        lead = (self.R, 1 if T is None else T, self.E)
        where = self.rng.random(lead) < (0.6 if masked else 2)
        tree = {path: np.zeros(lead + field.shape, field.dtype) for path, field in self.leaves.items()}
        final = {path[1:]: np.zeros_like(leaf) for path, leaf in tree.items() if path[0] == "next_obs"}
        for r, t, e in np.ndindex(lead):
            script = self.scripts[r, e]
            record, last = script.step() if where[r, t, e] else (script.garbage(), None)
            for path, value in record.items():
                tree[path][r, t, e] = value
            for path, value in (last or {}).items():
                final[path][r, t, e] = value
        options = {"where": self.outward(where, time=T is not None)} if masked else {}
        if self.oracle.autoreset == "same_step":
            options["final_obs"] = self.as_stacks({("next_obs", *path): leaf for path, leaf in final.items()}, T)[
                "next_obs"
            ]
        method = self.buffer.add if T is None else self.buffer.extend
        ids = method(**self.as_stacks(tree, T, masked=masked), **options)
        expected = self.oracle.extend(unflatten(tree), where, unflatten(final))
        expected = self.outward(expected, time=T is not None)
        assert type(ids) is (np.ndarray if expected.ndim else int)
        assert np.asarray(ids).dtype == np.int64
        np.testing.assert_array_equal(ids, expected)

    def end_episodes(self):
        """Reset some environments without a word to the buffer but `end_episode`."""
        where = self.rng.random((self.R, 1, self.E)) < 0.5
        for r, _, e in zip(*np.nonzero(where), strict=True):
            self.scripts[r, e].start()
        self.buffer.end_episode(self.outward(where, time=False))
        self.oracle.end_episode(where[:, 0])

    def older_frames(self, leaf, leaves, n, *, padded):
        """Anything (R, T, E, n, ...), but where an episode may begin: there padding, which is all that is taken."""
        older = self.rng.integers(0, 2, (*leaf.shape[:3], n, *leaf.shape[3:])).astype(leaf.dtype)
        ended = sum(leaves.get((name,), np.zeros(leaf.shape[:3], bool)) for name in ("terminated", "truncated")) > 0
        first = np.ones(leaf.shape[:3], bool)
        if not padded and self.oracle.autoreset != "next_step":
            first[:, 1:] = ended[:, :-1]
        padding = np.zeros_like(older) if self.stack.padding == "zero" else np.repeat(leaf[:, :, :, None], n, axis=3)
        older[first] = padding[first]
        return older

    def as_stacks(self, leaves, T, *, masked=False):
        """Nest leaves (R, T, E, ...) for a call; stack them, with anything for older frames, if stacks are wanted."""
        named = self.stack.fields if self.stack and self.stack.stacked_input else ()
        names = [*named, *(f"next_{name}" for name in named)]
        out = {}
        for path, leaf in leaves.items():
            if under(path, names):
                k = self.stack.length
                older = self.older_frames(leaf, leaves, k - 1, padded=masked)
                leaf = np.concatenate([older, leaf[:, :, :, None]], axis=3)
            out[path] = self.outward(leaf, time=T is not None)
        return unflatten(out)

    def update_priorities(self, n, magnitudes=(0.0, 0.25, 1.0, 3.5, 64.0), *, as_td_error=False):
        """Give feedback for ids of batches, some of them of steps long gone."""
        ids = np.stack([self.feedback_ids(rows, n) for rows in self.rows])
        least = 1 if isinstance(self.sampler, RankBased) else 0
        values = np.array(magnitudes)[self.rng.integers(least, len(magnitudes), ids.shape)]
        if as_td_error:
            fed = {"td_error": self.outer(values * self.rng.choice([-1, 1], ids.shape))}
            values = values + self.epsilon
        else:
            fed = priorities_or_errors(self.sampler, self.outer(values))
        count = self.buffer.update_priorities(self.outer(ids), **fed)
        assert type(count) is int
        pairs = zip(self.rows, ids.tolist(), values.tolist(), strict=True)
        assert count == sum(rows.update_priorities(i, p) for rows, i, p in pairs)

    @property
    def epsilon(self):
        """The number that the innermost sampler adds to errors."""
        return self.oracle.replay[0].samplers[-1].epsilon

    def write(self, n):
        """Write some fields of steps, some of them long gone; of equal ids the last counts."""
        ids = np.stack([self.any_ids(rows.replay, n) for rows in self.rows])
        names = [name for name in self.fields if name not in (*ENDS, *self.sampler.clock_fields)]
        names = set(self.rng.choice(names, self.rng.integers(1, len(names) + 1), replace=False))
        script = self.scripts[0, 0]
        records = [[script.record(script.observe(), script.observe()) for _ in row] for row in ids]
        values = {
            path: np.array([[step[path] for step in row] for row in records], field.dtype).reshape(
                *ids.shape, *field.shape
            )
            for path, field in self.leaves.items()
            if path[0] in names
        }
        outward = unflatten({path: self.outer(value) for path, value in values.items()})
        count = self.buffer.write(self.outer(ids), **outward)
        assert type(count) is int
        written = 0
        for r, (rows, row) in enumerate(zip(self.rows, ids.tolist(), strict=True)):
            written += rows.replay.write(row, {path: value[r] for path, value in values.items()})
            rows.goals_known_at = None
        assert count == written

    def remove(self, n):
        """Remove steps, some of them long gone."""
        ids = np.stack([self.any_ids(rows.replay, n) for rows in self.rows])
        count = self.buffer.remove(self.outer(ids))
        assert type(count) is int
        assert count == sum(rows.replay.remove(row) for rows, row in zip(self.rows, ids.tolist(), strict=True))
        for rows in self.rows:
            rows.goals_known_at = None

    def any_ids(self, replay, n):
        """Ids of steps, some of them long gone, and -1."""
        in_use = replay.in_use
        return self.rng.integers(max(in_use.start - 3, -1), in_use.stop, n) if in_use else np.full(n, -1)

    def outer(self, rows):
        """Drop the axis of replicas if there are none."""
        return rows if self.replicas is not None else rows[0]

    def feedback_ids(self, rows, n):
        stored = rows.replay.stored
        if not stored:
            return np.full(n, -1)
        ids, oldest = self.rng.choice(stored, n), stored[0]
        if rows.sequence:
            ids = np.array([rows.block(i)[0] for i in ids], np.int64)
        gone = (self.rng.random(n) < 0.2) & (oldest > 0)
        return np.where(gone, self.rng.integers(-1, max(oldest, 1), n), ids)

    def reload(self, folder):
        """Save, load, and continue with the copy, which must draw as the original does.

        Every other time its environments are reset, and the open episodes end.
        """
        self.buffer.save(folder)
        arguments = {"sampler": self.sampler} if isinstance(self.sampler, CustomSampler) else {}
        arguments |= {"transforms": self.transforms} if self.hindsight else {}
        twin = ReplayBuffer.load(folder, continue_episodes=True, **arguments)
        for _ in range(3):
            if not self.drawable(3):
                break
            for replay in self.oracle.replay:
                replay.drew(3)
            mine, other = (flatten(buffer.sample(3, progress=0.5)) for buffer in (self.buffer, twin))
            assert mine.keys() == other.keys()
            for path in mine:
                assert bits(mine[path]) == bits(other[path])
        self.buffer = twin
        if self.rng.random() < 0.5:
            twin.save(folder)
            self.buffer = ReplayBuffer.load(folder, continue_episodes=False, **arguments)
            self.oracle.cut_episodes()
            for script in self.scripts.values():
                script.start()
            self.buffer.save(folder)
            self.buffer = ReplayBuffer.load(folder, **arguments)  # no episode is open any more

    def check_contents(self):
        """Sizes, and every stored step: by `columns` and by `get`."""
        sizes = [len(replay.stored) for replay in self.oracle.replay]
        for ids, replay in zip(self.buffer.stored_ids(), self.oracle.replay, strict=True):
            assert ids.tolist() == list(replay.stored)
        np.testing.assert_array_equal(self.buffer.size, sizes if self.replicas is not None else sizes[0])
        columns = flatten(self.buffer.columns)
        derived = {path for path in self.leaves if path[0] == "next_obs" and self.next_obs == "derived"}
        assert columns.keys() == self.leaves.keys() - derived
        for path, column in columns.items():
            for replay, slots in zip(self.oracle.replay, self.per_replica(column), strict=True):
                if replay.stored:
                    stored = slots[np.array(replay.stored) % replay.capacity]
                    assert bits(stored) == bits([replay.steps[i][path] for i in replay.stored]), path
        if min(sizes):
            ids = np.stack([self.rng.choice(replay.stored, 20) for replay in self.oracle.replay])
            stored = flatten(self.buffer.get(self.outer(ids)))
            assert stored.keys() == self.leaves.keys()
            for path, column in stored.items():
                for replay, row, replica in zip(
                    self.oracle.replay, ids.tolist(), self.per_replica(column), strict=True
                ):
                    assert bits(replica) == bits([replay.steps[i][path] for i in row]), path

    def check_probabilities(self, batch_size=4):
        """Probabilities of the newest ids, some of them gone."""
        if not self.drawable(batch_size):
            return
        ids = self.known_ids()[:, -self.buffer.capacity - 10 :]
        distribution_of_ids = self.buffer.probabilities(self.outer(ids), batch_size=batch_size)
        assert distribution_of_ids.dtype == np.float64
        distributions = [rows.distribution(batch_size) for rows in self.rows]
        expected = [
            [distribution.get(i, 0.0) for i in row]
            for distribution, row in zip(distributions, ids.tolist(), strict=True)
        ]
        np.testing.assert_allclose(self.per_replica(distribution_of_ids), expected, rtol=self.rtol, atol=0)

    def check_sample(self, batch_size, *, again=False):
        """Draw a batch and compare every row; `again`: into the arrays of the last such batch."""
        if not self.drawable(batch_size):
            with pytest.raises((EmptyBufferError, PriorityError)):
                self.buffer.sample(batch_size, progress=0.5)
            return
        out = self.batches.get(batch_size) if again and not isinstance(self.sampler, CustomSampler) else None
        batch = self.buffer.sample(batch_size, progress=0.5, out=out)
        assert out is None or batch is out
        self.batches[batch_size] = batch
        columns = flatten(batch)
        assert (batch.id.dtype, batch.weight.dtype, batch.probability.dtype) == (np.int64, np.float32, np.float64)
        beta = self.sampler.scheduled if isinstance(self.sampler, Aged) else getattr(self.sampler, "beta", 0.0)
        beta = beta(0.5) if callable(beta) else beta
        for r, rows in enumerate(self.rows):
            mine = {path: self.per_replica(column)[r] for path, column in columns.items()}
            assert all(len(column) == self.sampler.rows(batch_size) for column in mine.values())
            distribution = rows.distribution(batch_size)
            ids = mine["id",].tolist()
            np.testing.assert_allclose(mine["probability",], [distribution[i] for i in ids], rtol=self.rtol)
            if not self.sequence:
                weight = rows.replay.weights(ids, batch_size, beta)
                np.testing.assert_allclose(mine["weight",], weight, rtol=2e-6, atol=1e-37)
                self.check_fixed_rows(rows.replay, ids, batch_size, distribution)
            for k, i in enumerate(ids):
                row = {path: column[k] for path, column in mine.items()}
                self.check_row(rows, i, row, batch_size)
            rows.replay.drew(batch_size)

    def check_row(self, rows, id_, row, batch_size):
        """Compare one row of a batch with the oracle's."""
        goal = None
        assert (("relabelled",) in row) == self.hindsight
        if self.hindsight and row["relabelled",]:
            goal = self.goal_of(row)
            goals = {rows.goal(g).tobytes() for g in rows.allowed(id_, batch_size)}
            assert goal.tobytes() in goals, f"row {id_} got the goal {goal}, which no allowed step achieved"
        expected = rows.row(id_, goal)
        columns = {(name,) for name in ("id", "probability", "weight", "relabelled")}
        assert row.keys() - columns == expected.keys()
        for path, value in expected.items():
            actual, wanted = np.asarray(row[path]), np.asarray(value)
            assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape), path
            if path in (("reward",), ("discount",)):
                np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6, err_msg=str(path))
            else:
                assert bits(actual) == bits(wanted), f"{path} of row {id_}:\n{actual}\nshould be\n{wanted}"

    def goal_of(self, row):
        """The goal a row asks for: that of its newest frame, at a sequence's first masked-in place."""
        goal = row["obs", "desired_goal"]
        if self.sequence:
            goal = goal[row["mask",].argmax()]
        return goal.reshape(-1, 2)[-1].copy()

    def check_fixed_rows(self, replay, ids, batch_size, distribution):
        """Check the properties of a batch that hold for any random numbers."""
        newest = replay.stored[-1]
        match self.sampler:
            case Online():
                assert ids == [newest]
            case SlidingWindow():
                assert ids == list(replay.stored)[: -batch_size - 1 : -1]  # newest first
            case Combined():
                assert ids[-1] == newest
            case FreshFirst():
                fresh = replay.waiting()[:batch_size]
                assert ids[: len(fresh)] == fresh
            case Prioritized():
                for i in set(ids):
                    # B P segments long, it touches at most ceil(B P) + 1 of them and covers floor(B P) - 1.
                    share = batch_size * distribution[i]
                    assert distribution[i] > 0
                    assert math.floor(share * (1 - 1e-6)) - 1 <= ids.count(i) <= math.ceil(share * (1 + 1e-6)) + 1
