"""Compressed fields: the codec, the log of packed values, and buffers that must not differ from plain ones."""

import ctypes
import itertools
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import FieldError, OverSizeError, SnapshotError
from replaylab.replay import Field, FrameStack, Hindsight, NStep, Prioritized, ReplayBuffer, Reservoir, Sequence
from tests.replay.compiled import NEEDS_COMPILER, compiled

PROBE = Path(__file__).with_name("packed_log_probe.cpp")
SOURCES = ("storage/lz4.cpp", "storage/packed_log.cpp")


@pytest.fixture(scope="module")
def probe():
    """The compiled codec and log."""
    path = compiled(PROBE, SOURCES, "-O2", "-shared", "-fPIC")
    library = ctypes.CDLL(str(path))
    for name in ("lz4_compress", "log_sparse", "log_segment_of", "log_nbytes", "log_living", "log_segment_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    i64, u64, pointer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
    library.lz4_compress.argtypes = library.lz4_decompress.argtypes = [ctypes.c_char_p, i64, pointer, i64]
    library.log_new.restype, library.log_new.argtypes = pointer, [i64, i64]
    library.log_put.restype, library.log_put.argtypes = u64, [pointer, ctypes.c_char_p]
    library.log_get.argtypes = [pointer, u64, pointer]
    library.log_release.argtypes = [pointer, u64]
    library.log_segment_of.argtypes = [u64]
    for name in ("log_delete", "log_trim", "log_sparse", "log_nbytes", "log_living", "log_segment_bytes"):
        getattr(library, name).argtypes = [pointer]
    return library


class Log:
    """A log of packed values of one length."""

    def __init__(self, probe, nbytes, values):
        self.probe, self.width, self.pointer = probe, nbytes, probe.log_new(nbytes, values)

    def __del__(self):
        self.probe.log_delete(self.pointer)

    def __getattr__(self, name):
        return lambda *arguments: getattr(self.probe, f"log_{name}")(self.pointer, *arguments)

    def value(self, ref):
        out = ctypes.create_string_buffer(self.width)
        self.probe.log_get(self.pointer, ref, out)
        return out.raw


def lz4_pack(probe, data, room=None):
    room = len(data) + len(data) // 255 + 16 if room is None else room
    out = ctypes.create_string_buffer(max(room, 1))
    written = probe.lz4_compress(data, len(data), out, room)
    return out.raw[:written]


def lz4_unpack(probe, block, size):
    out = ctypes.create_string_buffer(max(size, 1))
    return out.raw[:size] if probe.lz4_decompress(block, len(block), out, size) else None


def some_data():
    """Byte strings of every kind: edges of the format's lengths, runs, periods, pictures, text, noise."""
    rng = np.random.default_rng(0)
    yield from (bytes(n) for n in (0, 1, 4, 5, 11, 12, 13, 14, 18, 19, 20, 64, 270, 271, 65535, 65536, 65537, 200_000))
    yield from (rng.bytes(n) for n in (1, 12, 13, 15, 16, 255, 270, 285, 7056, 70_000))
    yield from ((bytes(range(1, d + 1)) * 400)[:n] for d in range(1, 20) for n in (13, 30, 31, 32, 33, 399))
    yield from screens(3).reshape(3, -1)
    for _ in range(200):
        pieces = [rng.bytes(rng.integers(1, 40)) for _ in range(6)]
        order = rng.integers(0, 6, rng.integers(1, 60))
        yield b"".join(pieces[k] * int(rng.integers(1, 4)) for k in order)


def screens(n, seed=0, noise=0):
    """Frames like a game's: a fixed background, a few moving blocks, from time to time another scene."""
    rng = np.random.default_rng(seed)
    frames = np.empty((n, 84, 84), np.uint8)
    for i in range(n):
        if i % 60 == 0:
            background = np.repeat(np.repeat(rng.integers(0, 256, (21, 21), np.uint8), 4, 0), 4, 1)
        frames[i] = background
        for k in range(3):
            y, x = (7 * i + 20 * k) % 76, (3 * i * (k + 1)) % 76
            frames[i, y : y + 8, x : x + 8] = 40 * k
        if noise:
            frames[i] ^= rng.integers(0, noise, (84, 84), np.uint8)
    return frames


# --- the codec


@NEEDS_COMPILER
def test_codec_gives_back_what_it_was_given(probe):
    for data in map(bytes, some_data()):
        block = lz4_pack(probe, data)
        assert lz4_unpack(probe, block, len(data)) == data
        if data:
            assert lz4_unpack(probe, block, len(data) - 1) is None
        assert lz4_unpack(probe, block, len(data) + 1) is None
        assert lz4_unpack(probe, block[:-1], len(data)) is None
        assert lz4_pack(probe, data, len(block)) == block
        assert lz4_pack(probe, data, len(block) - 1) == b""


@NEEDS_COMPILER
def test_codec_and_the_lz4_library_read_each_other(probe):
    lz4 = pytest.importorskip("lz4.block")
    for data in map(bytes, some_data()):
        assert lz4.decompress(lz4_pack(probe, data), uncompressed_size=len(data)) == data
        for mode in ("default", "fast", "high_compression"):
            block = lz4.compress(data, mode=mode, store_size=False)
            assert lz4_unpack(probe, block, len(data)) == data


@NEEDS_COMPILER
def test_codec_packs_about_as_well_as_the_lz4_library(probe):
    lz4 = pytest.importorskip("lz4.block")
    frames = [frame.tobytes() for frame in screens(120)]
    packed_bytes = sum(len(lz4_pack(probe, frame)) for frame in frames)
    assert packed_bytes <= 1.02 * sum(len(lz4.compress(frame, store_size=False)) for frame in frames)


@NEEDS_COMPILER
def test_damaged_bytes_touch_nothing_outside():
    flags = ["-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPROBE_FUZZ"]
    try:
        program = compiled(PROBE, SOURCES, *flags)
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no sanitizers")
    ran = subprocess.run([str(program), "5", "400"], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# --- the log


@NEEDS_COMPILER
@pytest.mark.parametrize("noise", [0, 2, 256])
def test_a_fifo_log_holds_little_more_than_its_values(probe, noise):
    frames = [frame.tobytes() for frame in screens(4000, noise=noise)]
    log = Log(probe, 7056, 500)
    refs = []
    for i, frame in enumerate(frames):
        refs.append(log.put(frame))
        if i >= 500:
            log.release(refs[i - 500])
            assert log.sparse() == -1
        log.trim()
        assert log.nbytes() <= log.living() * (1 + 1 / 9) + 3 * log.segment_bytes() + 20 * 7056
    for i in range(3500, 4000):
        assert log.value(refs[i]) == frames[i]


@NEEDS_COMPILER
def test_log_packs_differences_to_a_key(probe):
    frames = [frame.tobytes() for frame in screens(60)]
    log = Log(probe, 7056, 1000)
    for frame in frames:
        log.put(frame)
    assert log.living() < 0.5 * sum(len(lz4_pack(probe, frame)) for frame in frames)


@NEEDS_COMPILER
def test_log_of_noise_costs_four_bytes_a_value(probe):
    log, rng = Log(probe, 7056, 1000), np.random.default_rng(0)
    for _ in range(100):
        log.put(rng.bytes(7056))
    assert log.living() == 100 * (7056 + 4)


@NEEDS_COMPILER
def test_log_let_go_of_at_random_names_a_sparse_segment(probe):
    frames = [frame.tobytes() for frame in screens(3000)]
    log, rng = Log(probe, 7056, 300), np.random.default_rng(0)
    refs = [log.put(frame) for frame in frames]
    living = set(rng.choice(3000, 300, replace=False).tolist())
    for i in set(range(3000)) - living:
        log.release(refs[i])
    moved = 0
    while (segment := log.sparse()) >= 0:
        for i in [i for i in living if log.probe.log_segment_of(refs[i]) == segment]:
            old, refs[i] = refs[i], log.put(log.value(refs[i]))
            log.release(old)
            moved += 1
    assert 0 < moved < 300
    log.trim()
    assert log.nbytes() <= 2 * log.living() + 7 * log.segment_bytes() + 20 * 7056
    assert all(log.value(refs[i]) == frames[i] for i in living)


# --- buffers

FLAGS = {"terminated": Field((), bool), "truncated": Field((), bool)}
COMBINATIONS = {
    "plain": {},
    "derived": {"next_obs": "derived"},
    "stack": {"transforms": (FrameStack(4),)},
    "zero stack, n-step, derived": {"transforms": (NStep(3), FrameStack(3, padding="zero")), "next_obs": "derived"},
    "sequence, derived": {"transforms": (Sequence(6, 3, 2),), "next_obs": "derived"},
    "prioritized": {"sampler": Prioritized()},
    "reservoir": {"retention": Reservoir()},
}


def make(compressed, capacity=40, obs=None, **options):
    obs = Field((84, 84), np.uint8, compressed=compressed) if obs is None else obs(compressed)
    return ReplayBuffer(capacity, {"obs": obs, "reward": Field(), "next_obs": obs, **FLAGS}, seed=7, **options)


def fill(buffer, steps, frames, seed=0):
    """Steps of every environment: mostly one frame after another, episodes of all lengths, now and then again."""
    rng = np.random.default_rng(seed)
    lead = tuple(n for n in (buffer.replicas, buffer.num_envs) if n is not None)
    at = rng.integers(0, len(frames) - 1, lead)
    for _ in range(steps):
        ends = rng.random(lead) < 0.1
        where = None if not lead else rng.random(lead) < 0.9
        buffer.add(
            obs=frames[at],
            reward=at,
            next_obs=frames[at + 1],
            terminated=ends,
            truncated=np.zeros(lead, bool),
            where=where,
        )
        again = ends | (rng.random(lead) < 0.05)
        at = np.where(again, rng.integers(0, len(frames) - 1, lead), (at + 1) % (len(frames) - 1))


def assert_alike(buffer, two, draws=3):
    if min(buffer._parts.core.counts()[0]) == 0:
        return
    for _ in range(draws):
        a, b = buffer.sample(16, progress=0.5), two.sample(16, progress=0.5)
        assert dict(a).keys() == dict(b).keys()
        for name in dict(a):
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        for name, value in buffer.get(a.id).items():
            np.testing.assert_array_equal(value, two.get(b.id)[name], err_msg=name)


@pytest.mark.parametrize("noise", [0, 256])
@pytest.mark.parametrize(
    ("capacity", "axes"),
    [
        *((40, axes) for axes in ((None, None), (None, 4), (3, None), (2, 2))),
        *((capacity, (None, None)) for capacity in (1, 2, 5, 64, 1000)),
    ],
)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_compressed_fields_are_what_plain_ones_are(name, capacity, axes, noise):
    frames = screens(150, noise=noise)
    plain, packed = (
        make(compressed, capacity, replicas=axes[0], num_envs=axes[1], **COMBINATIONS[name])
        for compressed in (False, True)
    )
    for turn, steps in enumerate((3, 30, 60, 1)):
        for buffer in (plain, packed):
            fill(buffer, steps, frames, seed=turn)
        assert_alike(plain, packed)


@pytest.mark.parametrize("dtype", [bool, np.int16, np.float32, np.float64, np.complex64])
def test_every_dtype_keeps_its_bits(dtype):
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(50, {"x": Field((9, 7, 3), dtype, compressed=True), "y": Field()})
    values = (rng.standard_normal((80, 9, 7, 3)).round() * 3).astype(dtype)
    ids = buffer.extend(x=values, y=np.arange(80))
    np.testing.assert_array_equal(buffer.get(ids[30:])["x"].view(np.uint8), values[30:].view(np.uint8))


def test_compressed_goals_can_be_relabelled():
    goal = {c: Field((64,), np.float32, compressed=c) for c in (False, True)}
    hindsight = Hindsight(
        lambda achieved, desired, info: -(achieved != desired).any(-1).astype(np.float32),
        lambda achieved, desired, info: (achieved == desired).all(-1),
    )
    rng = np.random.default_rng(0)
    goals = rng.integers(0, 3, (61, 64)).astype(np.float32)
    buffers = []
    for c, derived in itertools.product((False, True), ("stored", "derived")):
        obs = {"achieved_goal": goal[c], "desired_goal": goal[c]}
        fields = {"obs": obs, "next_obs": obs, "reward": Field(), **FLAGS}
        buffers.append(ReplayBuffer(40, fields, transforms=(hindsight,), next_obs=derived, seed=1))
        for t in range(60):
            buffers[-1].add(
                obs={"achieved_goal": goals[t], "desired_goal": goals[0]},
                next_obs={"achieved_goal": goals[t + 1], "desired_goal": goals[0]},
                reward=0.0,
                terminated=t % 9 == 8,
                truncated=False,
            )
    batch, *others = (buffer.sample(32) for buffer in buffers)
    assert batch.relabelled.any()
    for other in others:
        np.testing.assert_array_equal(batch.obs["desired_goal"], other.obs["desired_goal"])
        np.testing.assert_array_equal(batch.next_obs["achieved_goal"], other.next_obs["achieved_goal"])
        np.testing.assert_array_equal(batch.reward, other.reward)


def test_memory_is_that_of_the_packed_frames():
    frames = screens(600)
    plain, packed = make(False, 500), make(True, 500)
    empty = packed.nbytes
    for buffer in (plain, packed):
        fill(buffer, 600, frames)
    assert empty < plain.nbytes / 50
    assert packed.nbytes < plain.nbytes / 4
    full = packed.nbytes
    fill(packed, 2000, frames)
    assert packed.nbytes < 1.5 * full


def test_memory_of_noise_is_bounded():
    frames = screens(300, noise=256)
    packed = make(True, 500)
    fill(packed, 2000, frames)
    assert packed.nbytes < make(False, 500).nbytes * 1.25


def test_a_reservoir_keeps_no_log_of_what_it_dropped():
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(100, {"x": Field((1000,), np.uint8, compressed=True)}, retention=Reservoir(), seed=0)
    most = 0
    for _ in range(60):
        buffer.extend(x=rng.integers(0, 256, (500, 1000), np.uint8))
        most = max(most, buffer.nbytes)
    assert most < 12 * 2**16


# --- columns, errors


def test_compressed_fields_have_no_column():
    picture, number = Field((84, 84), np.uint8, compressed=True), Field()
    fields = {"obs": {"camera": picture, "speed": number}, "pair": (picture, number), "alone": picture}
    columns = ReplayBuffer(10, fields).columns
    assert columns.keys() == {"obs", "pair"}
    assert columns["obs"].keys() == {"speed"}
    assert columns["pair"][0] is None
    assert columns["pair"][1].shape == (10,)


@pytest.mark.parametrize("shape", [(), (15,), (2**26,)])
def test_values_too_small_or_large_to_compress(shape):
    with pytest.raises(FieldError, match=r"a compressed field must hold 64 bytes to 67,108,864 bytes a step, but .*"):
        Field(shape, np.float32, compressed=True)


def test_compression_is_no_part_of_equality_but_shown():
    packed = Field((84, 84), np.uint8, compressed=True)
    assert packed == Field((84, 84), np.uint8)
    assert "compressed=True" in repr(packed)


def test_over_size_error_says_what_may_come_on_top():
    with pytest.raises(OverSizeError, match=r"compressed fields come on top, at most [\d,.]+ TiB"):
        ReplayBuffer(10**11, {"x": Field((7056,), np.uint8, compressed=True), "y": Field()})


# --- snapshots


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_restored_buffer_goes_on_alike(name, tmp_path):
    frames = screens(300)
    buffer = make(True, 200, num_envs=2, **COMBINATIONS[name])
    fill(buffer, 260, frames)
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path, continue_episodes=True)
    assert loaded.fields["obs"].compressed
    for turn in range(8):
        assert_alike(buffer, loaded, 1)
        for each in (buffer, loaded):
            fill(each, 20, frames, seed=turn)


def test_save_writes_only_segments_that_changed(tmp_path):
    buffer = make(True, 2000)
    fill(buffer, 1500, screens(1600, noise=2))
    buffer.save(tmp_path)
    before = {file.name for file in tmp_path.glob("packed-*")}
    fill(buffer, 20, screens(50))
    buffer.save(tmp_path)
    after = {file.name for file in tmp_path.glob("packed-*")}
    assert len(before) > 4
    assert len(before - after) <= 2  # the open segments of obs and next_obs
    listed = {entry["file"] for entry in json.loads((tmp_path / "manifest.json").read_text())["files"].values()}
    assert after == {name for name in listed if name.startswith("packed")}
    assert_alike(buffer, ReplayBuffer.load(tmp_path))


def test_save_after_values_moved_writes_every_row(tmp_path):
    """Rows hold references, which change when a sparse segment's values are put again."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(100, {"x": Field((1000,), np.uint8, compressed=True)}, retention=Reservoir(), seed=0)
    for _ in range(20):
        buffer.extend(x=rng.integers(0, 256, (500, 1000), np.uint8))
        buffer.save(tmp_path)
    assert_alike(buffer, ReplayBuffer.load(tmp_path))


def test_a_forged_snapshot_is_never_read_out_of_bounds(tmp_path):
    """Even where someone wrote matching checksums: every reference is checked, and so is every byte unpacked."""
    buffer = make(True)
    fill(buffer, 30, screens(50))
    rng = np.random.default_rng(0)
    for _ in range(100):
        loaded = make(True)
        fill(loaded, 30, screens(50))
        rows = loaded._parts.core.bytes(0)
        references = rows[:30].view(np.uint64)
        references[rng.integers(30), rng.integers(2)] = rng.integers(0, 2**63, dtype=np.uint64) >> np.uint64(
            rng.integers(0, 60)
        )
        try:
            loaded._parts.core.settle()
            loaded.get(np.arange(30))
        except SnapshotError:
            pass
        del rows, references
