"""Library versions and hardware of a machine that trains chunks."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from replaylab.files.canonical_json import digest

_LIBRARIES = (
    *("replaylab", "numpy", "torch", "gymnasium", "scipy", "duckdb", "pyarrow"),
    *("stable-baselines3", "sb3-contrib"),
)


@dataclass(frozen=True)
class Machine:
    """Library versions and hardware of a worker, each by name."""

    versions: dict[str, str]
    hardware: dict[str, str]

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that identify it; machines with equal records count as one."""
        return digest(asdict(self))


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """Return the record of the machine that this process runs on, made once."""
    return Machine(versions(), hardware())


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that take part, without importing them."""
    installed = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            installed[library] = version(library)
        except PackageNotFoundError:
            continue
    return installed


def hardware() -> dict[str, str]:
    """Return the processor, the number of cores this process may use, the memory, and the system."""
    return {
        "processor": _processor(),
        "cores": str(cores()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
    }


def cores() -> int:
    """Return the number of cores this process may use, by its affinity and by the limit of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _quota())))


def _quota(root: Path = Path("/sys/fs/cgroup"), memberships: Path = Path("/proc/self/cgroup")) -> float:
    """Return how many cores' time Linux' control groups give to this process, version 2 or 1; inf: no limit."""
    limits = [math.inf]
    lines = memberships.read_text(encoding="utf-8").splitlines() if memberships.is_file() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        base = root if not controllers else root / "cpu" if "cpu" in controllers.split(",") else None
        if base is None:
            continue
        group = base / path.lstrip("/")
        limits += [_limit(folder) for folder in (group, *group.parents) if base in (folder, *folder.parents)]
    return min(limits)


def _limit(folder: Path) -> float:
    """Return the limit that one control group sets, in cores."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8").strip() for name in ("quota", "period")
            )
    except (OSError, ValueError):
        return math.inf
    return int(quota) / int(period) if quota not in ("max", "-1") else math.inf


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{total / 2**30:.0f} GiB"
