"""Mutations of files: single bytes, numbers at edges of their ranges, lengths, and JSON values."""

import json
import struct
import zipfile
import zlib
from copy import deepcopy
from io import BytesIO

import numpy as np

from replaylab.files.bundle import seal

NUMBERS = (
    *(-(2**63), -(2**62), -(2**40), -(2**31), -100, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 16, 17, 26, 63),
    *(64, 100, 127, 128, 255, 256, 4095, 4096, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40),
    *(2**53, 2**61, 2**62, 2**63 - 1),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, 3.4e38, float("inf"), float("-inf"), float("nan"))
VALUES = (None, True, False, "", "x", "..", "Uniform", [], {}, [[]], {"a": 1}, 0.5, -1.5, 1e300, *NUMBERS[-20:], -1, 3)


def bytes_of(rng, content):
    """Return bytes with some of them other ones, gone, or more."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(content)) if content else 0
        kind = rng.randrange(7)
        if kind == 0:
            content[at:] = b""
        elif kind == 1:
            content[at:at] = rng.randbytes(rng.choice((1, 4, 8, 64)))
        elif kind == 2:
            del content[at : at + rng.choice((1, 4, 8, 64))]
        elif kind == 3:
            number(rng, content, at // 8 * 8, 8)
        elif kind == 4:
            number(rng, content, at // 4 * 4, 4)
        elif content:
            content[at] ^= 1 << rng.randrange(8)
    return bytes(content)


def number(rng, content, at, width):
    """Put another number where one of so many bytes is."""
    if at + width > len(content):
        return
    previous = int.from_bytes(content[at : at + width], "little")
    value = rng.choice(
        (rng.choice(NUMBERS), previous + rng.choice((-2, -1, 1, 2, 16)), previous ^ 1 << rng.randrange(8 * width))
    )
    content[at : at + width] = (value % 256**width).to_bytes(width, "little")


def json_value(rng, value):
    """Return nested JSON with one member another, gone, twice, or moved."""
    places = list(_places(value))
    inside, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del inside[key]
    elif kind == 1:
        other, its = rng.choice(places)
        try:
            inside[key] = deepcopy(other[its])
        except (KeyError, IndexError, TypeError):
            inside[key] = None
    elif kind == 2 and isinstance(inside, list):
        inside.append(inside[key])
    elif kind == 3 and type(inside[key]) is int:
        inside[key] += rng.choice((-1, 1, -8, 8))
    elif kind == 3 and isinstance(inside[key], str):
        inside[key] = inside[key][: rng.randrange(len(inside[key]) + 1)] + rng.choice(
            ("", "/", "\0", "π", "../", ".npy")
        )
    else:
        inside[key] = rng.choice(VALUES)
    return value


def _places(value):
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


class Arrays:
    """The arrays of an ``.npz`` file, which can be changed where they lie."""

    def __init__(self, content):
        self.content = content
        self.members = []  # where its numbers begin, their dtype, how many; and where the directory has its checksum
        with zipfile.ZipFile(BytesIO(content)) as archive:
            at = archive.start_dir
            for info in archive.infolist():
                names = struct.unpack_from("<HH", content, info.header_offset + 26)
                begin = info.header_offset + 30 + sum(names)
                head = BytesIO(content[begin : begin + info.file_size])
                np.lib.format.read_magic(head)
                shape, _, dtype = np.lib.format.read_array_header_1_0(head)
                self.members.append((begin, info.file_size, head.tell(), dtype, int(np.prod(shape)), at + 16))
                at += 46 + sum(struct.unpack_from("<HHH", content, at + 28))
        self.full = [member for member in self.members if member[4] > 0]

    def changed(self, rng):
        """Return the file with a few numbers of one array others, or with an array of another length."""
        content = bytearray(self.content)
        if rng.random() < 0.03:
            return self._resized(rng)
        begin, size, head, dtype, count, checksum = rng.choice(self.full)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = begin + head + rng.randrange(count) * dtype.itemsize
            if dtype.kind == "f" and rng.random() < 0.7:
                content[at : at + dtype.itemsize] = np.array(rng.choice(FLOATS), dtype).tobytes()
            else:
                number(rng, content, at, dtype.itemsize)
        content[checksum : checksum + 4] = struct.pack("<I", zlib.crc32(content[begin : begin + size]))
        return bytes(content)

    def _resized(self, rng):
        with np.load(BytesIO(self.content)) as stored:
            arrays = {name: stored[name] for name in stored.files}
        name = rng.choice(list(arrays))
        length = rng.choice((0, 1, 2, 3, len(arrays[name].ravel()) + 1, 100))
        arrays[name] = np.resize(arrays[name], length)
        if rng.random() < 0.2:
            arrays[name] = arrays[name].astype(rng.choice(("<f8", "<i4", "|b1", "<u8")))
        if rng.random() < 0.2:
            del arrays[name]
        out = BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()


def snapshot(rng, files, arrays):
    """Return the files of a snapshot that are now others, by name; mostly with their checksums put right."""
    kind = rng.random()
    names = sorted(files)
    if kind < 0.1:  # nothing is put right
        name = rng.choice(names)
        return {name: bytes_of(rng, files[name])}
    manifest = json.loads(files["manifest.json"])
    changed = {}
    if kind < 0.35:
        manifest = json_value(rng, manifest)
    else:
        name = next(name for name in names if name.startswith("state"))
        if kind < 0.85:
            content = arrays.changed(rng)
        else:
            name = rng.choice([name for name in names if name != "manifest.json"])
            content = bytes_of(rng, files[name])
        changed[name] = content
        for entry in manifest["files"].values():
            if entry["file"] == name:
                entry |= {"bytes": len(content), "crc32": zlib.crc32(content)}
    if isinstance(manifest, dict):
        manifest["crc32"] = seal(manifest)
    return changed | {"manifest.json": json.dumps(manifest).encode()}


def storage(rng, content):
    """Return a file of rows with a few of its numbers others, or with any bytes others."""
    if rng.random() < 0.05:
        return bytes_of(rng, content)
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice((16, 8192, 8192 + 128, 8192 + 256)) + 8 * rng.randrange(rng.choice((1, 4, 12, 64, 200)))
        if rng.random() < 0.05:
            at = 4096 + rng.randrange(600)
        number(rng, changed, at, rng.choice((8, 8, 4, 4, 1)))
    return bytes(changed)
