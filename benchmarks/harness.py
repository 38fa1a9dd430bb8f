"""Parts of every benchmark's command: its options, turns of its contestants, paired ratios, and the JSON file."""

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def parser(description: str | None, rounds: int | None = None, *, writes_json: bool = False) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's command.

    Args:
        description: The module's docstring.
        rounds: Default of ``--rounds``, if the command has that option.
        writes_json: Whether it has the option ``--json``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        parser.add_argument(
            "--rounds", type=int, default=rounds, help="turns of each contestant (default: %(default)s)"
        )
    if writes_json:
        parser.add_argument("--json", type=Path, help="write the figures there")
    return parser


def rotated(names: list[str], number: int) -> list[str]:
    """Return the order of a round: each begins with another contestant."""
    shift = number % max(len(names), 1)
    return names[shift:] + names[:shift]


def take_turns(
    contestants: Mapping[str, Callable[[], T]], rounds: int, shown: Callable[[T], str] | None = None
) -> dict[str, list[T]]:
    """Run every contestant once a round, in a rotating order; return the results by name.

    Args:
        contestants: Each runs one turn and returns its result.
        rounds: Turns of each.
        shown: Text of a result, for a printed line a round.
    """
    results: dict[str, list[T]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in rotated(list(contestants), number):
            results[name].append(contestants[name]())
        if shown:
            line = ", ".join(f"{name} {shown(values[-1])}" for name, values in results.items())
            print(f"round {number + 1}: {line}", flush=True)
    return results


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Return the ratios within each round, since its turns share whatever else the machine does."""
    return [numerator / other for numerator, other in zip(above, below, strict=True)]


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures and the machine to a file, if one is asked for."""
    if path is not None:
        path.write_text(json.dumps({**figures, "machine": machine()}, indent=2) + "\n")
        print(f"written to {path}")


def machine() -> dict[str, Any]:
    """Name the processor, its count, the load, and whether huge pages may be asked for."""
    model = platform.processor() or platform.machine()
    info, pages = Path("/proc/cpuinfo"), Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "huge_pages": pages.read_text().strip() if pages.exists() else None,
    }
