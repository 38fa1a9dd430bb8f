"""Record what one checkout computes: `collect.py OUT`, which `python -m golden COMMIT` runs in both checkouts.

OUT becomes an ``.npz`` of named values. A name is a path, such as ``draws/Prioritized()/NStep/replicas=3``; a value is
an array or a text. `compare.py` compares two of them. This one script records both commits, so a difference is one of
the library. It uses nothing of the tests, and only public names that both commits have; a sampler that one of them
lacks is left out there. After a renaming, this script must accept the old and the new name.
"""

import hashlib
import importlib
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from torch import nn

from golden.scene import ByCount, World, add_batch, drawn
from replaylab import ReplayError, replay
from replaylab.learners import DQN, TrainingConfig, train
from replaylab.replay import (
    Field,
    FrameStack,
    Hindsight,
    MemoryMap,
    NStep,
    Prioritized,
    Queue,
    ReplayBuffer,
    Sequence,
    SharedMemory,
)
from replaylab.study import InProcess, Study

Values = Iterator[tuple[str, np.ndarray | str]]

IDS, BATCH, CAPACITY, ENVS = 10_000, 200, 997, 2
WORLDS, CALLS = 100, 25
WIDE = 32

FIELDS = {
    "obs": Field((2,)),
    "action": Field((), np.int64),
    "reward": Field(),
    "next_obs": Field((2,)),
    "terminated": Field((), bool),
    "truncated": Field((), bool),
}
GOAL = {"observation": Field(), "achieved_goal": Field(), "desired_goal": Field()}
GOAL_FIELDS = FIELDS | {"obs": GOAL, "next_obs": GOAL}


def by_goal(achieved, desired, info):
    """Return −1, or 0 where the goal is near."""
    return -(np.abs(achieved - desired) > 0.5).astype(np.float32)


def never(achieved, desired, info):
    """Return that no goal ends an episode."""
    return np.zeros(len(achieved), bool)


TRANSFORMS = {
    "transitions": {},
    "NStep": {"transforms": [NStep(3, 0.97)]},
    "FrameStack": {"transforms": [FrameStack(3)], "next_obs": "derived"},
    "Sequence": {"transforms": [Sequence(5, 2, 1)]},
    "Hindsight": {"transforms": [Hindsight(by_goal, never)], "fields": GOAL_FIELDS},
}


SAMPLERS = """
Aged(Prioritized(beta=0.5), half_life=20.0)
Aged(Uniform(), half_life=20.0, floor=0.1, window=30)
AntiPrioritized()
AntiPrioritized(block_length=4)
BinnedPrioritized(between=0.3, within=0.9)
Blocks(length=4)
ByCount()
Combined()
Combined(distinct=True)
Combined(mode="replace")
Combined(mode="replace", distinct=True)
EpisodeEnds(share=0.5, steps=3)
EpisodeEnds(share=0.9, truncated=True)
FreshFirst(Prioritized(beta=0.5))
Geometric(expected_age=10.0)
Geometric(expected_age=1e6)
Greedy()
LAP()
LaBER(lambda pool: pool["id"] % 5)
Mixture((Recency(eta=0.9, least=3, burst=5), RankBased(), ShuffledEpochs()), (2, 1, 1))
Mixture((Uniform(), Permuted(block_length=2), AntiPrioritized(block_length=4)), (1, 1, 2))
Mixture((Uniform(), Prioritized()))
Online()
Oracle(lambda ids: -np.abs(ids % 7 - 3.0))
Permuted()
Permuted(bins=4)
Permuted(bins=4, block_length=2)
Permuted(block_length=4)
Permuted(stratified=False)
Prioritized()
Prioritized(alpha=1.0, beta=1.0, normalize="batch")
Prioritized(alpha=1.0, beta=1.0, normalize="batch", block_length=8)
Prioritized(block_length=4)
Prioritized(block_length=4, stratified=False)
Prioritized(new_steps="largest_ever")
Prioritized(replace=False)
Prioritized(stratified=False)
Queue()
RankBased()
RankBased(alpha=1.0, normalize="none")
RankBased(new_steps="largest_ever")
ReLo()
ReLo(block_length=2)
Recency(eta=Linear(0.99, 1.0), least=5, burst=4)
ShuffledEpochs()
SlidingWindow()
Uniform()
Uniform(replace=False)
Uniform(stratified=True)
"""


def public_names() -> dict[str, object]:
    """Return what samplers are made of; some of them moved from `replaylab.replay` to `replaylab.research`."""
    names = vars(replay) | {"ByCount": ByCount, "np": np}
    return names | vars(importlib.import_module("replaylab.research")) if find_spec("replaylab.research") else names


def samplers() -> dict[str, replay.Sampler]:
    """Return the samplers of `SAMPLERS` that this checkout has, by their text."""
    names, by_text = public_names(), {}
    for text in SAMPLERS.split("\n")[1:-1]:
        with suppress(NameError):
            by_text[text] = eval(text, names)
    return by_text


def steps(first: int, count: int, replicas: int | None, goals: bool) -> dict:
    """Return `count` time steps of every environment from number `first` on, (R, T, E)."""
    r, t, e = np.meshgrid(np.arange(replicas or 1), np.arange(first, first + count), np.arange(ENVS), indexing="ij")
    n = ((t * ENVS + e) * 7919 + r) % 10_007
    obs, following = n % 97 / 4, (n + 7919 * ENVS) % 97 / 4
    values = {
        "obs": np.stack([obs, obs + 1], -1),
        "action": n % 5,
        "reward": (n % 11 - 5) / 8,
        "next_obs": np.stack([following, following + 1], -1),
        "terminated": (t + e) % 23 == 22,
        "truncated": (t + 2 * e) % 31 == 30,
    }
    if goals:
        values["obs"] = {"observation": obs, "achieved_goal": n % 13 / 2, "desired_goal": e + 0.0}
        values["next_obs"] = {"observation": following, "achieved_goal": n % 17 / 2, "desired_goal": e + 0.0}
    return values if replicas is not None else _without_replicas(values)


def _without_replicas(values: dict) -> dict:
    return {k: _without_replicas(v) if isinstance(v, dict) else v[0] for k, v in values.items()}


class Driver:
    """A buffer that is added to, drawn from and given feedback in turn."""

    def __init__(self, buffer: ReplayBuffer, goals: bool = False, batch_size: int = BATCH, width: int = 2) -> None:
        self.buffer, self.goals, self.batch_size, self.width, self.time = buffer, goals, batch_size, width, 0
        self.digest = hashlib.sha256()
        self.add(CAPACITY // ENVS // 2)

    def add(self, count: int) -> None:
        """Add so many time steps."""
        columns = steps(self.time, count, self.buffer.replicas, self.goals)
        if self.width > 2:
            columns |= {
                name: np.resize(columns[name], (*columns["reward"].shape, self.width)) for name in ("obs", "next_obs")
            }
        self.buffer.extend(**columns)
        self.time += count

    def draw(self, progress: float) -> np.ndarray:
        """Draw a batch, feed back, add; return its ids."""
        queue = isinstance(self.buffer.sampler, Queue)
        batch = self.buffer.sample(self.batch_size, progress=progress)
        add_batch(self.digest, batch)
        if self.buffer.sampler.wants_feedback:
            error = batch.id * 37 % 101 / 64 - 0.75
            self.buffer.update_priorities(batch.id, error.reshape(batch.id.shape[: error.ndim]))
        self.add(self.batch_size // ENVS if queue else 9)
        return batch.id

    def ids(self, count: int) -> np.ndarray:
        """Return at least so many drawn ids."""
        drawn = [self.draw(0.0)]
        while sum(ids.size for ids in drawn) < count:
            if drawn[-1].size < 8 and len(drawn) >= 400:  # `Online` gives one row a batch
                break
            drawn.append(self.draw(min(1.0, len(drawn) / 50)))
        return np.concatenate([ids.ravel() for ids in drawn])


def draws() -> Values:
    """10,000 drawn ids of every sampler × transform × replicas, where the combination is allowed, and the batches."""
    for (name, sampler), (transform, options), replicas in product(samplers().items(), TRANSFORMS.items(), (None, 3)):
        options = {"fields": FIELDS, "replicas": replicas, "num_envs": ENVS, "seed": 11} | options
        key = f"{name}/{transform}/replicas={replicas}"
        try:
            driver = Driver(ReplayBuffer(CAPACITY, sampler=sampler, **options), transform == "Hindsight")
            ids = driver.ids(IDS)
        except ReplayError as error:
            yield f"draws/{key}", type(error).__name__
            continue
        yield f"draws/{key}", ids
        yield f"batches/{key}", driver.digest.hexdigest()
        with suppress(ReplayError):  # no closed form
            newest = ids.max() - np.arange(50) - np.zeros((replicas or 1, 1), np.int64)
            asked = newest if replicas else newest[0]
            yield f"probabilities/{key}", driver.buffer.probabilities(asked, batch_size=BATCH, progress=0.5)


def tapes(folder: Path) -> Values:
    """Draws from a tape."""
    names = public_names()
    writer, source = names["TapeWriter"](), ReplayBuffer(CAPACITY, FIELDS, num_envs=ENVS, seed=3)
    source.extend(**steps(0, 200, None, False))
    for _ in range(20):
        writer.append(source.sample(32).id)
    writer.write(folder / "tape.npz")
    tape = names["Tape"](folder / "tape.npz")
    driver = Driver(ReplayBuffer(CAPACITY, FIELDS, num_envs=ENVS, sampler=tape, seed=3), batch_size=32)
    yield "draws/Tape", np.stack([driver.draw(0.0) for _ in range(20)])


def worlds() -> Values:
    """Batches of random buffers in random states: every column of each batch, as one checksum a world."""
    for number in range(WORLDS):
        yield f"worlds/{number}", drawn(World(np.random.default_rng(70_000 + number)), CALLS)


def restored(folder: Path) -> Values:
    """Draws after a save and a load, of every sampler × storage × compression."""
    storages = {"memory": lambda n: None, "map": lambda n: MemoryMap(folder / f"map{n}"), "shared": _shared}
    compressed = FIELDS | {name: Field((WIDE,), compressed=True) for name in ("obs", "next_obs")}
    for number, ((name, sampler), (where, storage), fields) in enumerate(
        product(samplers().items(), storages.items(), (FIELDS, compressed))
    ):
        if where == "shared" and sys.platform != "linux":
            continue
        key = f"restored/{name}/{where}/{'compressed' if fields is compressed else 'plain'}"
        place = storage(number)
        try:
            buffer = ReplayBuffer(CAPACITY, fields, num_envs=ENVS, sampler=sampler, storage=place, seed=5)
        except ReplayError as error:
            yield key, type(error).__name__
            continue
        driver = Driver(buffer, width=WIDE if fields is compressed else 2)
        driver.ids(500)
        buffer.save(folder / f"snapshot{number}")
        arguments = {"sampler": sampler} if name.startswith(("ByCount", "LaBER", "Oracle")) else {}
        driver.buffer = ReplayBuffer.load(folder / f"snapshot{number}", continue_episodes=True, **arguments)
        yield key, driver.ids(1_000)
        if place is not None:
            for replay_buffer in (driver.buffer, buffer):
                replay_buffer.close()
            place.unlink()


def _shared(number: int) -> SharedMemory:
    import os

    return SharedMemory(f"replaylab-golden-{os.getpid()}-{number}")


def shortened(name: str, changes: dict[str, str]) -> str:
    """Return the text of a shipped study with some of its lines replaced."""
    text = Path(f"studies/{name}.toml").read_text()
    for before, after in changes.items():
        text, count = re.subn(rf"^{before}$", after, text, count=1, flags=re.MULTILINE)
        assert count == 1, (name, before)
    return text


SB3 = """
name = "sb3"
title = "An algorithm of Stable-Baselines3"
environments = ["Pendulum-v1"]
seeds = 1
baseline = "uniform"
budget.steps = 300
evaluation = { every = 150, episodes = 1 }
logging.every = 50
[learners.td3]
type = "sb3"
algorithm = "TD3"
policy = "MlpPolicy"
arguments = { learning_starts = 100, batch_size = 16 }
[strategies.uniform]
type = "uniform"
[strategies.prioritized]
type = "prioritized"
"""


def network(space, num_actions):
    """Return a network for `own_module`."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, num_actions))


def own_module() -> Values:
    """Metrics of training with a custom network."""
    learner = DQN(module=network, learning_starts=100)
    config = TrainingConfig("CartPole-v1", learner, Prioritized(), total_steps=600, eval_every=300, log_every=100)
    columns = train(config, seeds=[0, 1]).columns
    for metric in np.unique(columns["metric"]):
        if not metric.startswith("time/"):
            yield f"rows/module/{metric}", columns["value"][columns["metric"] == metric]


def studies(folder: Path) -> Values:
    """Rows of small studies, metric by metric, and the tables of their reports."""
    every = {
        "quick": shortened(
            "quick", {r"seeds = \d+": "seeds = 3", "steps = 30_000": "steps = 3_000", "every = 1_500": "every = 1_000"}
        ),
        "taxi": shortened(
            "taxi",
            {"seeds = 30": "seeds = 3", "episodes = 1_000": "episodes = 60", "every = 20": "every = 10"}
            | {"(epsilon = .*)1.0792e-5(.*)": r"\g<1>0.01226\2"},
        ),
        "bit-flip": shortened(
            "bit-flip", {"seeds = 5": "seeds = 2", "steps = 40_000": "steps = 4_000", "every = 4_000": "every = 2_000"}
        ),
        "sb3": SB3,
    }
    for name, text in every.items():
        (folder / f"{name}.toml").write_text(text)
        study = Study.from_toml(folder / f"{name}.toml", folder / name)
        study.run(executor=InProcess(), show=False)
        rows = study.query(
            "select metric, environment, learner, strategy, seed, step, value from results "
            "where metric not like 'time/%' order by all"
        ).fetchnumpy()
        metrics = np.asarray(rows.pop("metric")).astype(str)
        for metric in np.unique(metrics):
            at = metrics == metric
            yield f"rows/{name}/{metric}", np.ma.filled(np.asarray(rows["value"])[at])
        columns = [np.asarray(rows[c]).astype(str) for c in ("environment", "learner", "strategy", "seed", "step")]
        yield (
            f"rows/{name}",
            hashlib.sha256("\n".join(map("\t".join, zip(metrics, *columns, strict=True))).encode()).hexdigest(),
        )
        study.report(folder / name / "report", figure_files=False)
        for table in sorted((folder / name / "report" / "tables").glob("*.csv")):
            yield f"tables/{name}/{table.stem}", table.read_text()


MODULES = (
    *("replaylab", "replaylab.replay", "replaylab.research", "replaylab.learners", "replaylab.study", "replaylab.envs"),
    *("replaylab.testing", "replaylab.measures", "replaylab.statistics", "replaylab.plotting", "replaylab.watch"),
    *("replaylab.errors", "replaylab.distributed", "replaylab.integrations.sb3", "replaylab.integrations.cleanrl"),
    *("replaylab.integrations.torchrl", "replaylab.integrations.tianshou", "replaylab.integrations.torch"),
)


def signatures() -> Values:
    """Every public name, and the parameters of what can be called."""
    for module in map(importlib.import_module, filter(find_spec, MODULES)):
        names = getattr(module, "__all__", None) or [n for n, v in vars(module).items() if _is_defined_in(module, n, v)]
        for name in sorted(names):
            value = getattr(module, name)
            yield f"signatures/{module.__name__}.{name}", _signature(value)
            if inspect.isclass(value):
                for member, what in inspect.getmembers(value):
                    if not member.startswith("_") and not inspect.isclass(what):
                        yield f"signatures/{module.__name__}.{name}.{member}", _signature(what)


def _is_defined_in(module, name: str, value: object) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def _signature(value: object) -> str:
    if not callable(value):
        return type(value).__name__
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "callable"
    shown = [
        f"{'*' * (p.kind - 1) if p.kind in (2, 4) else ''}{p.name}{'' if p.default is p.empty else '=…'}"
        for p in parameters
    ]
    return f"({', '.join(shown)})"


def collect(out: Path) -> None:
    """Write everything to `out`."""
    values: dict[str, np.ndarray | str] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for section in (
            draws(),
            tapes(folder),
            worlds(),
            restored(folder),
            studies(folder),
            own_module(),
            signatures(),
        ):
            for name, value in section:
                assert name not in values, name
                values[name] = value
    np.savez_compressed(out, **{name.replace("/", "\\"): np.asarray(value) for name, value in values.items()})
    print(f"{len(values)} values: {out}")


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
