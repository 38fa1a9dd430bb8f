"""The studies that ship with the library, by name."""

from __future__ import annotations

import ast
import difflib
import re
import tomllib
from pathlib import Path

from replaylab.errors import SpecError
from replaylab.files.atomic import writing
from replaylab.study.spec.spec import Spec


def shipped() -> dict[str, Path]:
    """Return the shipped studies, name to file, sorted by name."""
    package = Path(__file__).resolve().parents[1]
    roots = (package.parents[1], package)  # a checkout; an installed package, whose studies come first
    studies = {file.stem: file for root in roots for file in (root / "studies").glob("*.toml")}
    return dict(sorted(studies.items()))


TEMPLATE = Path(__file__).with_name("template.toml")
"""A study file to start from: its name is NAME, and optional lines begin with # and no space."""


def write_new(name: str) -> Path:
    """Write a study file to start from into the current folder, and return its path.

    Args:
        name: the study's name; the file is ``<name>.toml``.

    Raises:
        SpecError: it cannot be the name of a study, or there is such a file.
        StorageError: the file cannot be written.
    """
    name = name.removesuffix(".toml")
    content = TEMPLATE.read_text(encoding="utf-8")
    Spec.from_table({**tomllib.loads(content), "name": name}, source="study new")
    file = Path(f"{name}.toml")
    with writing(file):
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(content.replace("NAME", name))
        except FileExistsError:
            raise SpecError(
                f"study new: NAME must be the name of a new file, but {file} exists. Choose another name, or move it."
            ) from None
    return file


def published_examples() -> dict[str, dict[str, str]]:
    """Return what the docstrings in ``examples/published`` state as "Claim", "Source" and "Minutes", by script.

    Empty if the package is installed without the examples.
    """
    folder = Path(__file__).resolve().parents[3] / "examples" / "published"
    docstrings = {
        file.stem: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "" for file in folder.glob("*.py")
    }
    stated = {name: dict(_STATED.findall(text)) for name, text in sorted(docstrings.items())}
    return {name: lines for name, lines in stated.items() if lines}


_STATED = re.compile(r"^(Claim|Source|Minutes): (.+)$", re.MULTILINE)


def find(study: str | Path) -> Path:
    """Return the file of a study given by path, or by a shipped study's name.

    Raises:
        SpecError: there is neither such a file nor such a name.
    """
    path = Path(study)
    if path.is_file():
        return path
    names = shipped()
    if str(study) in names:
        return names[str(study)]
    close = difflib.get_close_matches(path.stem, names, n=1, cutoff=0.6)
    with_suffix = Path(f"{study}.toml")
    suggestion = str(with_suffix) if with_suffix.is_file() else close[0] if close else ""
    hint = f"Did you mean `{suggestion}`? " if suggestion else ""
    raise SpecError(
        f"There is no study file {str(study)!r}, and no shipped study of that name. {hint}"
        f"Shipped: {', '.join(names) or 'none'}."
    )
