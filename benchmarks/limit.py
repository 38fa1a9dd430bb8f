"""The limit as a process: compiles one of the C++ programs here and asks it for one timed block at a time."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

ROWS = Path(__file__).with_name("limit.cpp")
COPIES = Path(__file__).with_name("limit_copies.cpp")
TRANSFORMS = Path(__file__).with_name("limit_transforms.cpp")
LABEL = "limit"


def compile_limit(folder: Path, source: Path = ROWS) -> Path | None:
    """Compile a limit for this machine; return the program, or `None` without a working compiler."""
    compiler = shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    program = folder / source.stem
    flags = ["-std=c++17", "-O3", "-march=native", "-o", str(program), str(source)]
    done = subprocess.run([compiler, *flags], capture_output=True, text=True, check=False)
    return program if done.returncode == 0 else None


class Limit:
    """A running limit program; use it in a `with` statement.

    Args:
        program: What `compile_limit` made.
        sizes: Its arguments: rows, and for the copying one also the bytes of a row.
    """

    def __init__(self, program: Path, *sizes: int) -> None:
        self._process = subprocess.Popen(
            [str(program), *map(str, sizes), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def block(self, operation: str, calls: int) -> float:
        """Run one block of calls; return nanoseconds a call.

        Raises:
            RuntimeError: If the program is gone or does not know the operation.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{operation} {calls}\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer or float(answer) < 0:
            raise RuntimeError(f"the limit program gave no time for {operation!r}, but {answer!r}")
        return float(answer)

    def __enter__(self) -> "Limit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=10)
        if self._process.stdout is not None:
            self._process.stdout.close()
