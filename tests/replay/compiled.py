"""Parts of the core compiled by themselves, once for all test processes: they are kept in `build/probes`."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

CORE = Path(__file__).parents[2] / "cpp"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
NEEDS_COMPILER = pytest.mark.skipif(
    COMPILER is None or not CORE.is_dir(), reason="needs the core's sources and a C++ compiler"
)


def compiled(probe, sources, *flags):
    """Return the program or library that a probe and sources of the core make.

    Raises:
        subprocess.CalledProcessError: The compiler refused them.
    """
    command = [*COMPILER.split(), "-std=c++17", "-w", f"-I{CORE}", *flags, str(probe)]
    command += [str(CORE / source) for source in sources]
    content = hashlib.sha256(repr(command).encode() + probe.read_bytes())
    for file in sorted(CORE.rglob("*.?pp")):
        content.update(file.read_bytes())
    library = CORE.parent / "build" / "probes" / f"{probe.stem}-{content.hexdigest()[:16]}"
    library.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(library.with_suffix(".lock")):
        if not library.exists():
            subprocess.run(
                [*command, "-o", str(library.with_suffix(".new"))], check=True, capture_output=True, text=True
            )
            library.with_suffix(".new").replace(library)
    return library
