"""Guarantee 6's second half: a restored buffer continues exactly as the original would have. And traps 13."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import SnapshotError
from replaylab.files.bundle import Bundle
from replaylab.replay import CustomSampler, Field, Prioritized, Recency, ReplayBuffer, Uniform, snapshot
from replaylab.research import Permuted
from tests.replay.buffers import FLAGS
from tests.replay.guarantees.test_conformance import IN_BLOCKS, SAMPLERS, kind_of

FIELDS = {"obs": {"image": Field((3,), np.uint8), "rest": (Field(), Field((2,), np.int64))}, **FLAGS}


def make(sampler, replicas, capacity=50):
    options = {"replicas": replicas, "num_envs": 3, "sampler": sampler, "autoreset": "next_step"}
    return ReplayBuffer(capacity, FIELDS, seed=4, **options)


def add(buffer, rng):
    lead = (buffer.num_envs,) if buffer.replicas is None else (buffer.replicas, buffer.num_envs)
    obs = {
        "image": rng.integers(0, 255, (*lead, 3), np.uint8),
        "rest": (rng.random(lead), rng.integers(0, 9, (*lead, 2))),
    }
    buffer.add(obs=obs, terminated=rng.random(lead) < 0.2, truncated=np.zeros(lead, bool))


def turn(buffer, rng):
    """One step of every environment, a batch, and its feedback."""
    add(buffer, rng)
    batch = buffer.sample(8, progress=0.3)
    buffer.update_priorities(batch.id, rng.standard_normal(batch.id.shape))
    return batch


def restored(path, sampler):
    custom = None if sampler.in_core else sampler
    return ReplayBuffer.load(path, sampler=custom, continue_episodes=True)


def assert_equal_draws(buffer, two, turns):
    rngs = [np.random.default_rng(9) for _ in range(2)]
    for _ in range(turns):
        a, b = turn(buffer, rngs[0]), turn(two, rngs[1])
        for x, y in (
            (a.id, b.id),
            (a.weight, b.weight),
            (a.probability, b.probability),
            (a.obs["image"], b.obs["image"]),
            (a.obs["rest"][1], b.obs["rest"][1]),
        ):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("sampler", [*SAMPLERS, *IN_BLOCKS], ids=kind_of)
def test_a_restored_buffer_goes_on_exactly(tmp_path, sampler, replicas):
    buffer = make(sampler, replicas)
    rng = np.random.default_rng(0)
    for _ in range(4):
        add(buffer, rng)
    for _ in range(20):
        turn(buffer, rng)
    buffer.save(tmp_path / "one")
    twin = restored(tmp_path / "one", sampler)
    assert twin.sampler == sampler
    assert repr(twin) == repr(buffer)
    assert_equal_draws(buffer, twin, 16)
    buffer.save(tmp_path / "one")  # into the same folder: only what changed
    assert_equal_draws(buffer, restored(tmp_path / "one", sampler), 16)


def test_a_thousand_draws(tmp_path):
    buffer = make(Prioritized(beta=0.4), None, capacity=1000)
    rng = np.random.default_rng(0)
    for _ in range(500):
        turn(buffer, rng)
    buffer.save(tmp_path / "one")
    assert_equal_draws(buffer, ReplayBuffer.load(tmp_path / "one", continue_episodes=True), 1000)


class TestTheFormat:
    """Plain JSON and NumPy arrays that anything can read."""

    def test_rows_open_in_numpy_alone(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field((2,)), "y": Field((), np.int64)})
        buffer.extend(x=np.arange(24.0).reshape(12, 2), y=np.arange(12))
        buffer.save(tmp_path)
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        rows = np.load(tmp_path / manifest["files"]["rows-0-0"]["file"], allow_pickle=False)
        np.testing.assert_array_equal(rows["y"], [10, 11, 2, 3, 4, 5, 6, 7, 8, 9])
        np.testing.assert_array_equal(rows["x"][0], [20, 21])
        assert manifest["next_ids"] == [12]

    def test_only_changed_rows_are_written_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr("replaylab.replay.snapshot.STRETCH", 400)  # 100 rows of 4 bytes
        buffer = ReplayBuffer(1000, {"x": Field()})
        buffer.extend(x=np.zeros(950))
        buffer.save(tmp_path)
        before = {f.name for f in tmp_path.glob("rows-*")}
        buffer.extend(x=np.ones(100))  # slots 950 to 999, then 0 to 49
        buffer.save(tmp_path)
        after = {f.name for f in tmp_path.glob("rows-*")}
        assert len(before) == len(after) == 10
        assert len(before & after) == 8
        np.testing.assert_array_equal(ReplayBuffer.load(tmp_path).columns["x"], buffer.columns["x"])

    def test_another_buffers_folder_is_written_whole(self, tmp_path):
        """Rows are kept only if the snapshot there is the one this buffer wrote or came from."""
        buffer, two = (ReplayBuffer(10, {"x": Field()}) for _ in range(2))
        buffer.extend(x=np.zeros(10))
        two.extend(x=np.ones(10))
        buffer.save(tmp_path)
        two.save(tmp_path)
        buffer.save(tmp_path)
        np.testing.assert_array_equal(ReplayBuffer.load(tmp_path).columns["x"], 0.0)


class TestRefusals:
    @pytest.mark.parametrize(
        "option",
        [{"autoreset": "next_step"}, {"min_size": 10}, {"count_replays": True}],
        ids=lambda option: next(iter(option)),
    )
    def test_options_that_change_what_a_buffer_does(self, tmp_path, option):
        ReplayBuffer(50, FIELDS, num_envs=2).save(tmp_path)
        mine = ReplayBuffer(50, FIELDS, num_envs=2, **option)
        (name, value) = next(iter(option.items()))
        with pytest.raises(
            SnapshotError, match=f"the snapshot is of a buffer with {name}=.*, but this one has {value}"
        ):
            mine.restore(tmp_path)
        assert getattr(mine._parts.config, name) == value

    @pytest.fixture
    def saved(self, tmp_path):
        buffer = ReplayBuffer(10, {"x": Field()}, sampler=Prioritized(beta=0.4))
        buffer.extend(x=np.zeros(10))
        buffer.save(tmp_path)
        return tmp_path

    def test_rows_of_another_layout(self, saved):
        with Bundle(saved, snapshot.SCHEMA).replacing() as draft:
            draft.array("rows-0-0", np.dtype(np.int32), np.zeros((10, 4), np.uint8))
            draft.arrays("state", draft.before.arrays("state"))
            draft.describe(**{name: draft.before[name] for name in snapshot.SCHEMA.members})
        with pytest.raises(SnapshotError, match="holds rows of another layout than this buffer's; it cannot be read"):
            ReplayBuffer.load(saved)

    def test_a_sampler_of_ones_own_must_be_given(self, tmp_path):
        sampler = next(s for s in SAMPLERS if isinstance(s, CustomSampler))
        ReplayBuffer(10, {"x": Field()}, sampler=sampler).save(tmp_path)
        with pytest.raises(SnapshotError, match=r"pass it again: ReplayBuffer\.load\(path, sampler=\.\.\.\)"):
            ReplayBuffer.load(tmp_path)


SAVER = """
import sys
import numpy as np
from replaylab import Field, ReplayBuffer
buffer = ReplayBuffer(200_000, {"x": Field((16,), np.int64)}, seed=0)
for stamp in range(1_000_000):
    buffer.extend(x=np.full((20_000, 16), stamp))
    buffer.save(sys.argv[1])
    print(stamp, flush=True)
"""


def kills(path, times, seed):
    """Kill a saving process so many times, each at another moment, and look at what it left."""
    rng = np.random.default_rng(seed)
    for _ in range(times):
        with subprocess.Popen([sys.executable, "-c", SAVER, path], stdout=subprocess.PIPE, text=True) as process:
            promised = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
            promised = max([promised, *map(int, process.stdout.read().split())])
        buffer = ReplayBuffer.load(path)
        newest = int(buffer.columns["x"].max())
        assert newest in (promised, promised + 1), "a save that was reported done is lost"
        stored = buffer.get(np.arange(max(0, (newest + 1) * 20_000 - 200_000), (newest + 1) * 20_000))
        stamps = np.arange((newest + 1) * 20_000 - len(stored["x"]), (newest + 1) * 20_000) // 20_000
        np.testing.assert_array_equal(stored["x"], np.broadcast_to(stamps[:, None], stored["x"].shape))


@pytest.mark.no_sanitizer
@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
class TestKills:
    """A kill at any moment leaves the old snapshot or the new one, whole."""

    def test_a_few(self, tmp_path):
        kills(Path(tmp_path) / "s", 4, seed=1)

    @pytest.mark.slow
    def test_two_hundred(self, tmp_path):
        kills(Path(tmp_path) / "s", 200, seed=2)


@pytest.mark.no_sanitizer
def test_saving_takes_no_second_buffer_and_no_pickle(tmp_path, monkeypatch):
    """At most 5 % of the rows' memory on top, as Python sees it (the rows go straight to the file)."""
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.delattr(pickle, name)
    buffer = ReplayBuffer(200_000, {"x": Field((64,))}, sampler=Uniform())
    buffer.extend(x=np.ones((200_000, 64), np.float32))
    tracemalloc.start()
    buffer.save(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.05 * buffer.nbytes
    assert (ReplayBuffer.load(tmp_path).columns["x"] == 1).all()


def test_a_burst_that_is_shorter_goes_on_where_it_is(tmp_path):
    buffer = ReplayBuffer(20, {"x": Field()}, sampler=Recency(eta=0.99, least=1, burst=10), seed=0)
    buffer.extend(x=np.arange(20.0))
    for _ in range(7):
        buffer.sample(2)
    buffer.save(tmp_path / "a")
    again = ReplayBuffer.load(tmp_path / "a", sampler=Recency(eta=0.99, least=1, burst=5))
    fresh = ReplayBuffer(20, {"x": Field()}, sampler=Recency(eta=0.99, least=1, burst=5), seed=0)
    fresh.extend(x=np.arange(20.0))
    for _ in range(2):
        fresh.sample(2)  # the eighth update of ten is as the third of five
    np.testing.assert_array_equal(again.probabilities(range(20)), fresh.probabilities(range(20)))


def test_a_permutation_without_bins_is_none_with_bins(tmp_path):
    for bins, to in ((1, 5), (5, 1), (5, 5)):
        buffer = ReplayBuffer(100, {"x": Field()}, sampler=Permuted(beta=0.5, bins=bins), seed=0)
        buffer.extend(x=np.arange(100.0))
        buffer.save(tmp_path / f"{bins}")
        if to > bins:
            with pytest.raises(SnapshotError):
                ReplayBuffer.load(tmp_path / f"{bins}", sampler=Permuted(beta=0.5, bins=to))
        else:
            ReplayBuffer.load(tmp_path / f"{bins}", sampler=Permuted(beta=0.5, bins=to))
