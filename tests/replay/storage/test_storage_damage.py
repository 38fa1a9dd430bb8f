"""Files of rows that something else has written to: an error that reports it, and never a crash, a wait without end, or
a raw message. Each is opened in a child process, so that one that dies or hangs is a failure of its test alone. A
process with nothing else in it makes the children: to make one of pytest's, with all the tests' modules, takes longer
than most tests here."""

import contextlib
import json
import os
import pickle
import select
import shutil
import signal
import struct
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import ConfigError, ReplayError, StorageError
from replaylab.replay import Field, MemoryMap, NStep, Prioritized, ReplayBuffer, SharedMemory
from tests.replay.storage.storage_worlds import FIELDS, NEEDS_LINUX, small_headroom, step

pytestmark = NEEDS_LINUX

CAPACITY, HEADROOM, WRITERS, ENVS = 10, 3, 2, 2
LOG = CAPACITY + HEADROOM
SECTION = 8192  # the header and a page of declaration come before
HEAD, RECORDS, WORDS = SECTION, SECTION + 128, SECTION + 128 + 64 * WRITERS
MARKS = WORDS + (8 * LOG + 63) // 64 * 64
NUMBERS = (-(2**63), -(2**40), -2, -1, 0, 1, 2, 7, 13, 26, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1)


def outcome_of_a_child(function, *args, seconds=20):
    """Return what a function says in a child process: "" if it returns, an error's class and text, or how it died."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads here hold nothing that it needs
        pid = os.fork()
    if pid == 0:
        try:
            function(*args)
            said = ""
        except BaseException as error:
            said = f"{type(error).__name__}: {error}" if isinstance(error, StorageError) else traceback.format_exc()
        os.write(writer, f"said:{said}".encode(errors="replace")[:4000])
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], seconds)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    said = os.read(reader, 5000).decode(errors="replace") if ready else ""
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    if not said.startswith("said:"):
        return f"hangs for {seconds} seconds" if not ready else f"dies by signal {os.WTERMSIG(status)}"
    return said.removeprefix("said:")


def answer():
    """Tell what each function says in a child process, as standard input asks."""
    assert np.ma  # loaded by asking for it, here and not in every child
    warnings.simplefilter("error")
    os.fsync = lambda file: None
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for what functions print
    with contextlib.suppress(EOFError):
        while True:
            function, args = pickle.load(sys.stdin.buffer)
            pickle.dump(outcome_of_a_child(function, *args), answers)
            answers.flush()


@pytest.fixture(scope="module")
def outcome():
    """Return the message of a function of this module in a child process."""
    command = [sys.executable, "-c", f"from {__name__} import answer; answer()"]
    folder = Path(__file__).parents[len(__name__.split(".")) - 1]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask(function, *args):
            process.stdin.write(pickle.dumps((function, args)))
            process.stdin.flush()
            return pickle.load(process.stdout)

        yield ask


def make(path, **options):
    options = {"sampler": Prioritized(beta=0.4), "transforms": (NStep(2),), "seed": 0} | options
    storage = MemoryMap(path, writers=WRITERS)
    with small_headroom(HEADROOM):
        return ReplayBuffer(CAPACITY, FIELDS, num_envs=ENVS, storage=storage, **options)


def use(path):
    """Everything that reads from the file, twice; an error must not come from what an earlier one left."""
    buffer = make(path)
    rng, first = np.random.default_rng(0), None
    calls = (
        lambda: buffer.sample(4),
        lambda: buffer.add(**step(rng, (ENVS,))),
        lambda: buffer.probabilities(range(3)),
        lambda: buffer.update_priorities([5, 6], [1.0, 2.0]),
        lambda: len(buffer),
        lambda: buffer.size,
        lambda: repr(buffer),
        lambda: buffer.stats(),
        lambda: buffer.extend(**{k: np.stack([v] * 9) for k, v in step(rng, (ENVS,)).items()}),
        lambda: buffer.flush(),
    )
    for call in calls * 2:
        try:
            call()
        except ReplayError as error:  # with fewer steps than there were, an id may be unknown
            first = first or (error if isinstance(error, StorageError) else None)
    buffer.close()
    if first is not None:
        raise first


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "rows"
    buffer = make(path)
    rng = np.random.default_rng(0)
    for _ in range(9):
        buffer.add(**step(rng, (ENVS,)))
    buffer.close()
    return path


@pytest.fixture
def file(sound, tmp_path):
    return Path(shutil.copy(sound, tmp_path / "rows"))


def put(file, at, content):
    with file.open("r+b") as rows:
        rows.seek(at)
        rows.write(content)


def test_the_file_is_as_this_test_takes_it_to_be(outcome, file):
    content = file.read_bytes()
    assert struct.unpack_from("<q", content, HEAD) == (18,)
    assert {struct.unpack_from("<Q", content, WORDS + 8 * n)[0] >> 32 for n in range(LOG)} == {1, 2}
    assert outcome(use, file) == ""


MEMBERS = (
    "capacity",
    "headroom",
    "writers",
    "replicas",
    "num_envs",
    "stride",
    "text",
    "first",
    "section",
    "size",
)
HEADER = {name: 16 + 8 * i for i, name in enumerate(MEMBERS)}


def refused_with_any_number(file, member):
    """Open the file with other numbers in its header, one member's or two's, then as it was.

    Raises:
        AssertionError: Something else than a StorageError came of it.
    """
    sound, at = file.read_bytes(), HEADER[member]
    for number in NUMBERS:
        for other in (None, "replicas", "writers", "num_envs"):  # two at once may fit each other
            if other == member:
                continue
            put(file, at, struct.pack("<q", number))
            if other is not None:
                put(file, HEADER[other], struct.pack("<q", 2**62 // max(1, number)))
            if file.read_bytes() == sound:
                continue
            try:
                use(file)
            except StorageError:
                pass
            else:
                raise AssertionError(f"{member} {number}, {other}: nothing was said")
            file.write_bytes(sound)
    use(file)


@pytest.mark.parametrize("member", HEADER)
def test_a_header_of_any_number(outcome, file, member):
    said = outcome(refused_with_any_number, file, member)
    header = dict(zip(MEMBERS, struct.unpack_from(f"<{len(MEMBERS)}q", file.read_bytes(), 16), strict=True))
    assert said == "", header


@pytest.mark.parametrize("name", ["row", "id", "old"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_writers_record_of_any_number(outcome, file, name, number):
    for writer in range(WRITERS):
        put(file, RECORDS + 64 * writer + 8 * ["row", "id", "old"].index(name), struct.pack("<q", number))
    said = outcome(use, file)
    assert said == "" or said.startswith("StorageError: "), said
    if not -1 <= number <= 26:
        assert "is damaged: the record of a writer's place" in said


@pytest.mark.parametrize("number", [*NUMBERS, 17, 19, 5, 31, 18 + LOG])
def test_a_head_of_any_number(outcome, file, number):
    put(file, HEAD, struct.pack("<q", number))
    said = outcome(use, file)
    # 17: as if a writer had been killed before it moved the head.
    assert said == "" if number == 17 else "is damaged" in said, said


@pytest.mark.parametrize("lap", [0, 1, 2, 3, 2**32 - 1])
@pytest.mark.parametrize("row", [0, LOG + WRITERS - 1, LOG + WRITERS, 2**32 - 1])
def test_a_log_of_any_word(outcome, file, lap, row):
    for n in range(LOG):
        put(file, WORDS + 8 * n, struct.pack("<Q", lap << 32 | row))
    said = outcome(use, file)
    assert said.startswith("StorageError: "), said


@pytest.mark.parametrize("stream", [0, 3, 4, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("place", [0, 5, 2**32 - 1])
def test_marks_of_any_number(outcome, file, stream, place):
    for row in range(LOG + WRITERS + 1):
        put(file, MARKS + 16 * row, struct.pack("<qII", -1, stream, place))
    said = outcome(use, file)
    assert said.startswith("StorageError: ") == (stream & 0x7FFFFFFF > 3), said


def use_while_damaged(file, place, number):
    buffer = make(file)
    buffer.add(**step(np.random.default_rng(1), (ENVS,)))
    at = {"head": HEAD, "record": RECORDS}.get(place, WORDS)
    for n in range(LOG if place == "log" else 1):
        put(file, at + 8 * n, struct.pack("<q", number))
    for _ in range(3):
        for call in (lambda: buffer.sample(4), lambda: buffer.add(**step(np.random.default_rng(1), (ENVS,)))):
            try:
                call()
            except StorageError as error:
                last = error
    if place != "record":
        raise last


@pytest.mark.parametrize("number", [-1, 2**40, 2**63 - 1])
@pytest.mark.parametrize("place", ["head", "log", "record"])
def test_damage_that_comes_while_it_is_open(outcome, file, place, number):
    said = outcome(use_while_damaged, file, place, number)
    assert said.startswith("StorageError: ") or (place == "record" and said == ""), said


DECLARATIONS = [
    b"\xff\xfe",
    b"nonsense",
    b"[]",
    b"3",
    b"null",
    b'{"fields": []}',
    b'{"fields": {"obs": 3}}',
    b'{"fields": {"obs": {"dtype": "<f4"}}}',
    b"[" * 3000,
    b"\0",
]


@pytest.mark.parametrize("text", DECLARATIONS, ids=lambda text: repr(text[:12]))
def test_a_declaration_of_any_text(outcome, file, text):
    length = struct.unpack_from("<q", file.read_bytes(), 64)[0]
    put(file, 4096, text.ljust(length)[:length])
    for _ in range(2):
        said = outcome(use, file)
        assert said.startswith("StorageError: "), said
        put(file, 64, struct.pack("<q", len(text)))  # and its own length


def test_an_identity_must_be_text(outcome, file):
    put(file, 96, b"\xff" * 32)
    assert "its identity is not as written" in outcome(use, file)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nowhere", "device"])
def test_a_path_that_is_not_a_file_is_refused(outcome, tmp_path, kind):
    path = tmp_path / "rows"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    if kind == "link to nowhere":
        path.symlink_to(tmp_path / "no" / "where")
    if kind == "device":
        path.symlink_to("/dev/zero")
    assert outcome(use, path).startswith("StorageError: ")


@pytest.mark.parametrize("path", [None, 3, "", b"x", "a\0b", "\ud800"], ids=repr)
def test_an_invalid_path_is_refused(path):
    with pytest.raises(ConfigError, match="`path` of MemoryMap must be the path of a file"):
        MemoryMap(path)
    with pytest.raises(ConfigError, match="`name` of SharedMemory must be a file name"):
        SharedMemory(path)


def use_while_cut(file, length, call):
    buffer = make(file)
    buffer.sample(4)
    os.truncate(file, length)
    arguments = {"sample": (4,), "update_priorities": ([17], [1.0]), "probabilities": ([17],), "get": ([17],)}
    getattr(buffer, call)(*arguments.get(call, ()))


@pytest.mark.parametrize("length", [0, 1, 4096, 8192, 10_000])
@pytest.mark.parametrize("call", ["sample", "update_priorities", "probabilities", "get", "stats"])
def test_a_file_cut_short_while_it_is_open(outcome, file, length, call):
    assert "another process has cut it short" in outcome(use_while_cut, file, length, call)


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
static int is(const char* what) { const char* told = getenv("DISK"); return told && told[0] == what[0]; }
int fallocate(int file, int mode, off_t from, off_t bytes) {
    if (is("sparse")) return errno = EOPNOTSUPP, -1;
    return ((int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate"))(file, mode, from, bytes);
}
int posix_fallocate(int file, off_t from, off_t bytes) {
    if (is("sparse")) return EOPNOTSUPP;
    return ((int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate"))(file, from, bytes);
}
int fstatvfs(int file, struct statvfs* disk) {
    int done = ((int (*)(int, struct statvfs*))dlsym(RTLD_NEXT, "fstatvfs"))(file, disk);
    struct stat about;
    if (is("tiny") && fstat(file, &about) == 0) {  // a disk of 3 MB, of which this file has taken some
        disk->f_frsize = 512;
        disk->f_bavail = 6000 - about.st_blocks;
    }
    return done;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """Stands between a process and its file system."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [*compiler.split(), "-shared", "-fPIC", "-w", folder / "shim.c", "-o", folder / "shim.so", "-ldl"]
    subprocess.run(command, check=True)
    return folder / "shim.so"


MAKER = (
    "import sys; from replaylab import Field, ReplayBuffer, errors; from replaylab.replay import MemoryMap\n"
    "try: ReplayBuffer(50_000, {'x': Field((8,))}, storage=MemoryMap(sys.argv[1])).add(x=[1.0] * 8)\n"
    "except errors.StorageError as error: print(error)\n"
)


@pytest.mark.no_sanitizer
class TestDisks:
    def make(self, shim, disk, path):
        env = os.environ | {"LD_PRELOAD": str(shim), "DISK": disk}
        done = subprocess.run([sys.executable, "-c", MAKER, path], env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def test_space_that_cannot_be_set_aside(self, shim, tmp_path):
        """A sparse file would do until the disk is full, and then end the process."""
        said = self.make(shim, "sparse", tmp_path / "rows")
        assert "which its file system cannot set aside" in said
        assert (tmp_path / "rows").stat().st_size == 0

    def test_room_that_a_killed_maker_had_taken(self, shim, tmp_path):
        path = tmp_path / "rows"
        assert self.make(shim, "tiny", path) == ""
        size = path.stat().st_size
        assert 2 * size > 3_000_000
        put(path, 168, b"\0")  # not ready
        assert self.make(shim, "tiny", path) == ""
        assert path.stat().st_size == size

    def test_too_little_room(self, shim, tmp_path):
        (tmp_path / "rows").touch()
        env = os.environ | {"LD_PRELOAD": str(shim), "DISK": "tiny"}
        maker = MAKER.replace("50_000", "500_000")
        done = subprocess.run([sys.executable, "-c", maker, tmp_path / "rows"], env=env, capture_output=True, text=True)
        assert "but its file system has 3072000 free" in done.stdout


def use_loaded(folder):
    ReplayBuffer.load(folder).get([14])


def test_a_snapshot_of_rows_whose_log_is_damaged(outcome, file, tmp_path):
    make(file).save(tmp_path / "s")
    put(file, WORDS + 8, struct.pack("<Q", 0))

    assert "its log lacks a step that its head counts" in outcome(use_loaded, tmp_path / "s")


def test_the_words_of_the_manifest_and_of_the_declaration_agree(file):
    """The bytes that the tests above change have the meaning that the page states."""
    size = struct.unpack_from("<q", file.read_bytes(), 64)[0]
    assert json.loads(file.read_bytes()[4096 : 4096 + size])["capacity"] == CAPACITY
    assert Field  # the fields of `storage_worlds`
