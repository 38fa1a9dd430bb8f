"""Compare what two checkouts computed, except for the changes that `changes.toml` declares."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

CHANGES = Path(__file__).with_name("changes.toml")


def read(file: Path) -> dict[str, np.ndarray]:
    """Return the values of one checkout by name."""
    with np.load(file) as values:
        return {name.replace("\\", "/"): values[name] for name in values.files}


def differences(base: dict[str, np.ndarray], head: dict[str, np.ndarray], changes: dict) -> list[str]:
    """Return a line for each value that differs and is not declared.

    Args:
        base: The values of the older checkout by name.
        head: Those of the newer one.
        changes: ``renamed``: a table of old names to new ones, of which the beginnings count; ``change``: a list of
            ``{name, reason}``, where a name may hold ``*``.
    """
    renamed = changes.get("renamed", {})
    declared = [change["name"] for change in changes.get("change", [])]
    base = {_renamed(name, renamed): value for name, value in base.items()}
    lines = []
    for name in sorted({*base, *head}):
        if name not in head:
            what = "is gone"
        elif name not in base:
            what = "is new"
        elif same(base[name], head[name]):
            continue
        else:
            what = f"was {text(base[name])}, is {text(head[name])}"
        if not any(fnmatchcase(name, pattern) for pattern in declared):
            lines.append(f"{name}: {what}")
    return lines


def same(array: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two values are equal, NaN to NaN."""
    return array.shape == other.shape and np.array_equal(
        array, other, equal_nan=array.dtype.kind == other.dtype.kind == "f"
    )


def text(value: np.ndarray) -> str:
    """Return a short text of a value."""
    return f"{value.item()!s:.300}" if value.ndim == 0 else f"{value.dtype} {value.shape} {value.ravel()[:6]}"


def declared_changes() -> dict:
    """Return `changes.toml`."""
    return tomllib.loads(CHANGES.read_text())


def _renamed(name: str, renamed: dict[str, str]) -> str:
    for before, after in renamed.items():
        if name == before or name.startswith((f"{before}.", f"{before}/")):
            return after + name[len(before) :]
    return name
